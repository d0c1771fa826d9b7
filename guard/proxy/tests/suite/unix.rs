//! Unix sockets on both sides: requests, whom the proxy believes, and the socket's file. Does not
//! contain TLS.

use crate::harness::{Backend, Wire, connect, settle, start, start_with};
use crate::relay::{pump, relay};
use leeward_proxy::{LocalAddress, Proxy};
use leeward_testkit::wait::until;
use std::fs;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A folder of its own, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lw-unix-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("proxy.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A proxy on a Unix socket.
fn start_unix(path: &Path, backend: &Backend, extra: &str) -> Result<Proxy, String> {
    start_with(&format!("listen = \"unix:{}\"\nto = [\"{}\"]\n{extra}", path.display(), backend.address))
}

fn connect_unix(path: &Path) -> Wire {
    let stream = UnixStream::connect(path).expect("a connection");
    relay(stream.try_clone().expect("a second handle"), stream)
}

#[test]
fn clients_of_a_unix_socket_are_served() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let path = folder.socket();
    let proxy = start_unix(&path, &backend, "").expect("a proxy");
    assert_eq!(proxy.address(), &LocalAddress::Unix(path.clone()));
    assert_eq!(proxy.address().to_string(), format!("unix:{}", path.display()));
    let mut client = connect_unix(&path);
    for request in ["/a", "/b"] {
        assert_eq!(client.get(request).text(), request);
        // Long enough to sleep in between.
        thread::sleep(std::time::Duration::from_millis(600));
    }
    drop(client);
    settle(&proxy);
    proxy.stop();
    assert!(!path.exists(), "the file goes with the proxy");
}

#[test]
fn a_client_of_a_unix_socket_is_trusted_as_this_machine_is() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let proxy = start_unix(&folder.socket(), &backend, "").expect("a proxy");
    let mut client = connect_unix(&folder.socket());
    let stated = "x-forwarded-for: 10.0.0.1\r\nforwarded: for=10.0.0.1\r\nleeward: p=1\r\n";
    client.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{stated}\r\n"));
    client.answer();
    let head = backend.request(1).head;
    assert_eq!(head.get("x-forwarded-for"), Some("10.0.0.1".into()), "a Unix socket has no address to add");
    assert_eq!(head.get("forwarded"), Some("for=10.0.0.1".into()));
    client.get("/");
    assert_eq!(backend.request(2).head.get("x-forwarded-for"), None);
    assert_eq!(settle(&proxy).admitted_by_class[0], 1, "its class is believed");

    let folder = Folder::new();
    let _proxy = start_unix(&folder.socket(), &backend, "trust = [\"10.0.0.0/8\"]").expect("a proxy");
    let mut client = connect_unix(&folder.socket());
    client.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{stated}\r\n"));
    client.answer();
    let head = backend.request(3).head;
    assert_eq!((head.get("x-forwarded-for"), head.get("forwarded"), head.get("leeward")), (None, None, None));
}

#[test]
fn only_an_old_socket_is_replaced() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let path = folder.socket();
    let error = |wanted: &str| {
        let error = start_unix(&path, &backend, "").expect_err(wanted);
        assert!(error.contains(wanted) && error.contains("proxy.sock"), "{error}");
    };
    fs::write(&path, "data").expect("a file");
    error("no socket");
    assert_eq!(fs::read_to_string(&path).unwrap(), "data", "a file that is no socket stays");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).expect("a folder");
    error("no socket");
    fs::remove_dir(&path).unwrap();

    let live = UnixListener::bind(&path).expect("a listener");
    error("somebody listens");
    drop(live);
    // Now it is old: nobody listens on the file.
    let proxy = start_unix(&path, &backend, "").expect("a proxy");
    error("somebody listens");
    assert_eq!(connect_unix(&path).get("/x").text(), "/x");
    drop(proxy);
    until("the file goes", || !path.exists());

    let datagrams = UnixDatagram::bind(&path).expect("a socket");
    error("somebody listens");
    drop(datagrams);
    // A link is no socket, whatever it leads to.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    error("no socket");
}

#[test]
fn a_live_socket_with_a_full_queue_is_an_error_at_once() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let path = folder.socket();
    let live = UnixListener::bind(&path).expect("a listener");
    let (mut clients, flags) = (Vec::new(), rustix::net::SocketFlags::NONBLOCK);
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    loop {
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        if rustix::net::connect(&socket, &address).is_err() {
            break;
        }
        clients.push(socket);
    }
    let error = start_unix(&path, &backend, "").expect_err("it is alive");
    assert!(error.contains("somebody listens"), "{error}");
    drop(live);
}

#[test]
fn a_file_that_was_replaced_stays() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let path = folder.socket();
    let proxy = start_unix(&path, &backend, "").expect("a proxy");
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).expect("a listener");
    proxy.stop();
    assert!(path.exists(), "it is another one's");
    drop(other);
}

/// A Unix socket that leads to a backend.
fn listen_for(backend: &Backend, path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).expect("a listener");
    let (accepting, address) = (listener.try_clone().unwrap(), backend.address);
    thread::spawn(move || {
        while let Ok((client, _)) = accepting.accept() {
            let Ok(server) = std::net::TcpStream::connect(address) else { return };
            let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pump(client, server));
            thread::spawn(move || pump(back, forth));
        }
    });
    listener
}

#[test]
fn backends_may_be_unix_sockets() {
    let (folder, backend, tcp) = (Folder::new(), Backend::echo(), Backend::echo());
    let path = folder.0.join("app.sock");
    let _listener = listen_for(&backend, &path);
    let proxy = start_with(&format!("listen = \"127.0.0.1:0\"\nto = [\"unix:{}\"]", path.display())).expect("a proxy");
    let mut client = connect(&proxy);
    assert_eq!((client.get("/a").text(), client.get("/b").text()), ("/a".into(), "/b".into()));
    let head = backend.request(1).head;
    assert_eq!((head.get("host"), head.get("x-forwarded-for")), (Some("h".into()), Some("127.0.0.1".into())));
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1, "the connection is kept");
    let metrics = proxy.admission().backend_metrics();
    assert!(metrics.contains(&format!("{{backend=\"unix:{}\"}}", path.display())), "{metrics}");

    // Beside one that nobody listens on: requests go where one answers.
    let text = format!("listen = \"127.0.0.1:0\"\nto = [\"unix:{}/no.sock\", \"{}\"]", folder.0.display(), tcp.address);
    let proxy = start_with(&text).expect("a proxy");
    for _ in 0..4 {
        assert_eq!(connect(&proxy).get("/c").text(), "/c");
    }
}

#[test]
fn a_unix_socket_nobody_listens_on_is_an_unreachable_backend() {
    let folder = Folder::new();
    let text = format!("listen = \"127.0.0.1:0\"\nto = [\"unix:{}/no.sock\"]", folder.0.display());
    let proxy = start_with(&text).expect("a proxy");
    let answer = connect(&proxy).get("/");
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (502, Some("backend-unreachable".into())));
}

#[test]
fn tunnels_pass_unix_sockets() {
    let folder = Folder::new();
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
        let bytes = exchange.wire.exactly(5).unwrap_or_default();
        exchange.raw(bytes);
        exchange.close();
    });
    let path = folder.0.join("app.sock");
    let _listener = listen_for(&backend, &path);
    let socket = folder.socket();
    let text = format!("listen = \"unix:{}\"\nto = [\"unix:{}\"]", socket.display(), path.display());
    let _proxy = start_with(&text).expect("a proxy");
    let mut client = connect_unix(&socket);
    client.send("GET / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().head.status(), 101);
    client.send("hello");
    assert_eq!(client.exactly(5), Some(b"hello".to_vec()));
    client.closed();
}

#[test]
fn a_client_of_a_unix_socket_that_reads_nothing_is_ended() {
    let folder = Folder::new();
    let body = "x".repeat(4 << 20);
    let backend = Backend::start(move |exchange| exchange.ok(&body));
    let proxy = start_unix(&folder.socket(), &backend, "[timeouts]\nclient-idle = \"100ms\"").expect("a proxy");
    let mut client = UnixStream::connect(folder.socket()).expect("a connection");
    std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    settle_after(&proxy);
    drop(client);
}

/// Waits until a request has come and ended.
fn settle_after(proxy: &Proxy) {
    use leeward_observe::Source;
    until("a request comes", || proxy.admission().snapshot().arrived == 1);
    assert_eq!(settle(proxy).abandoned, 1);
}

#[test]
fn addresses_of_unix_sockets_are_checked() {
    for (listen, to) in [
        ("unix:", ":1"),
        ("unix:a.sock", ":1"),
        ("unix:/a\\\"b", ":1"),
        (":0", "unix:"),
        (":0", "unix:a"),
        (&format!("unix:/{}", "a".repeat(107)), ":1"),
    ] {
        let error = start_with(&format!("listen = \"{listen}\"\nto = [\"{to}\"]")).expect_err(listen);
        assert!(error.contains(if listen == ":0" { "`to`" } else { "`listen`" }), "{error}");
    }
    let backend = Backend::echo();
    let error = start_unix(Path::new("/nowhere/at/all.sock"), &backend, "").expect_err("no folder");
    assert!(error.contains("/nowhere/at/all.sock"), "{error}");
    drop(start(&[backend.address], ""));
}
