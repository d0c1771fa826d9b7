//! The PROXY protocol on both sides: whom the proxy believes, what it tells, and what is no header.
//! Does not contain the parser's own cases.

use crate::certificates::{Certificates, transport_metric};
use crate::harness::{Backend, Head, Wire, address, connect, settle, start, start_with};
use crate::relay::{pump, relay};
use leeward_proxy::Proxy;
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ACCEPT: &str = "accept-proxy-protocol = true\n";
const V1: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.1 4321 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\xc0\0\x02\x01\x10\xe1\x01\xbb";

fn headers(proxy: &Proxy, result: &str) -> u64 {
    transport_metric(proxy, &format!("proxy_protocol_headers_total{{result=\"{result}\"}}"))
}

/// The head that reaches the backend behind a header.
fn forwarded(extra: &str, first: &[u8], lines: &str) -> Head {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &format!("{ACCEPT}{extra}"));
    let mut client = connect(&proxy);
    client.send([first, format!("GET / HTTP/1.1\r\nhost: h\r\n{lines}\r\n").as_bytes()].concat());
    assert_eq!(client.answer().head.status(), 200);
    backend.request(1).head
}

#[test]
fn the_client_is_the_one_that_a_trusted_proxy_states() {
    for first in [V1, V2] {
        let head = forwarded("", first, "x-forwarded-for: 10.0.0.1\r\nleeward: p=1\r\n");
        assert_eq!(head.get("x-forwarded-for"), Some("203.0.113.7".into()), "nobody trusts what it says");
        assert_eq!(head.get("leeward"), None);
        let head = forwarded("trust = [\"127.0.0.1\", \"203.0.113.0/24\"]", first, "x-forwarded-for: 10.0.0.1\r\n");
        assert_eq!(head.get("x-forwarded-for"), Some("10.0.0.1, 203.0.113.7".into()), "it is trusted itself");
    }
    let head = forwarded("", b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n", "");
    assert_eq!(head.get("x-forwarded-for"), Some("2001:db8::7".into()));
    let head = forwarded("", b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n", "");
    assert_eq!(head.get("x-forwarded-for"), Some("203.0.113.7".into()));
}

#[test]
fn a_connection_of_the_proxy_in_front_has_its_own_address() {
    for first in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN 1 2 3\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let head = forwarded("", first, "x-forwarded-for: 10.0.0.1\r\n");
        assert_eq!(head.get("x-forwarded-for"), Some("10.0.0.1, 127.0.0.1".into()));
    }
}

#[test]
fn rules_see_the_stated_address() {
    let backend = Backend::echo();
    let rules = "[[rule]]\nclient = \"203.0.113.0/24\"\nclass = 6\n";
    let proxy = start(&[backend.address], &format!("{ACCEPT}{rules}"));
    let mut client = connect(&proxy);
    client.send([V2, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"].concat());
    client.answer();
    assert_eq!(settle(&proxy).admitted_by_class[6], 1);
    assert_eq!(headers(&proxy, "ok"), 1);
}

#[test]
fn headers_of_others_end_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &format!("{ACCEPT}trust = [\"10.0.0.0/8\"]\n"));
    for first in [V1, V2, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"] {
        let mut client = connect(&proxy);
        client.send(first);
        client.closed();
    }
    until("they are counted", || headers(&proxy, "untrusted") == 3);
    // Without the setting, a header is a malformed request.
    let proxy = start(&[backend.address], "");
    for first in [V1, V2] {
        let mut client = connect(&proxy);
        client.send([first, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"].concat());
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400"), "{rest}");
    }
    assert!(backend.requests().is_empty());
}

#[test]
fn what_is_no_header_ends_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], ACCEPT);
    let long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".as_slice(), &[0; 5_000]].concat();
    let wrong: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4321\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4321 443\n",
        b"PROXY UNKNOWN 1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c\xcb\0\x71\x07\xc0\0\x02\x01\x10\xe1\x01\xbb",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04\xcb\0\x71\x07",
        &long,
    ];
    for first in wrong {
        let mut client = connect(&proxy);
        client.send(first);
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        assert!(client.rest().is_empty(), "{:?}", String::from_utf8_lossy(first));
    }
    until("they are counted", || headers(&proxy, "malformed") == 8);
    let mut client = connect(&proxy);
    client.send(&V1[..20]);
    client.close_write();
    client.closed();
    until("it is counted", || headers(&proxy, "closed") == 1);
    assert!(backend.requests().is_empty());
}

#[test]
fn headers_may_come_in_pieces_and_not_too_late() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], ACCEPT);
    let fields = [&V2[..14], &[0x0b, 0xb8 + 12], &V2[16..], &[0xee; 3_000]].concat();
    for first in [V1, V2, &fields] {
        let mut client = connect(&proxy);
        let size = first.len().div_ceil(20);
        for piece in first.chunks(size) {
            client.send(piece);
            thread::sleep(Duration::from_millis(2));
        }
        client.send("GE");
        thread::sleep(Duration::from_millis(2));
        client.send("T /a HTTP/1.1\r\nhost: h\r\n\r\n");
        assert_eq!(client.answer().text(), "/a");
        assert_eq!(client.get("/b").text(), "/b");
    }
    let proxy = start(&[backend.address], &format!("{ACCEPT}[timeouts]\nclient = \"200ms\"\n"));
    let (mut silent, mut slow) = (connect(&proxy), connect(&proxy));
    slow.send(&V1[..30]);
    silent.closed();
    slow.closed();
    until("they are counted", || headers(&proxy, "timeout") == 2);
}

#[test]
fn the_header_comes_before_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &format!("{ACCEPT}{}", certificates.section("server", "")));
    for (at, first) in [V1, V2].into_iter().enumerate() {
        let (mut client, _) = certificates.client().connect_after(&proxy, first).expect("a handshake");
        assert_eq!(client.get("/a").text(), "/a");
        let head = backend.request(at + 1).head;
        assert_eq!(head.get("x-forwarded-for"), Some("203.0.113.7".into()));
        assert_eq!(head.get("x-forwarded-proto"), Some("https".into()));
    }
    assert!(certificates.client().connect(&proxy).is_err(), "a header must come");
}

#[test]
fn clients_of_unix_sockets_may_state_addresses() {
    let (folder, backend) = (tempfile::tempdir().unwrap(), Backend::echo());
    let path = folder.path().join("p.sock");
    let text = format!("listen = \"unix:{}\"\nto = [\"{}\"]\n{ACCEPT}", path.display(), backend.address);
    let _proxy = start_with(&text).expect("a proxy");
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut client = relay(stream.try_clone().unwrap(), stream);
    client.send(V1);
    assert_eq!(client.get("/a").text(), "/a");
    assert_eq!(backend.request(1).head.get("x-forwarded-for"), Some("203.0.113.7".into()));
}

/// Takes the header from each connection, and passes the rest to `next`.
pub(crate) struct Stripper {
    pub(crate) port: SocketAddr,
    headers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Stripper {
    pub(crate) fn in_front_of(next: SocketAddr) -> Stripper {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, headers) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let record = Arc::clone(&headers);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, record) = (client.unwrap(), Arc::clone(&record));
                thread::spawn(move || {
                    let mut header = vec![0; 13];
                    if client.read_exact(&mut header).is_err() {
                        return;
                    }
                    let mut byte = [0];
                    let is_text = header.starts_with(b"PROXY");
                    while if is_text { !header.ends_with(b"\r\n") } else { !is_whole(&header) } {
                        client.read_exact(&mut byte).unwrap();
                        header.push(byte[0]);
                    }
                    record.lock().unwrap().push(header);
                    let Ok(server) = TcpStream::connect(next) else { return };
                    let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    thread::spawn(move || pump(from, to));
                    pump(client, server);
                });
            }
        });
        Stripper { port, headers }
    }

    /// The headers, once there are so many.
    fn headers(&self, count: usize) -> Vec<Vec<u8>> {
        until("headers come", || self.headers.lock().unwrap().len() >= count);
        self.headers.lock().unwrap().clone()
    }
}

fn is_whole(header: &[u8]) -> bool {
    header.len() >= 16 && header.len() == 16 + usize::from(u16::from_be_bytes([header[14], header[15]]))
}

fn local(wire: &Wire) -> SocketAddr {
    wire.stream.local_addr().unwrap()
}

#[test]
fn backends_are_told_each_client() {
    for version in ["v1", "v2"] {
        let backend = Backend::echo();
        let stripper = Stripper::in_front_of(backend.address);
        let proxy = start(&[stripper.port], &format!("send-proxy-protocol = \"{version}\"\n"));
        let (mut one, mut two) = (connect(&proxy), connect(&proxy));
        for (at, client) in [&mut one, &mut two].into_iter().enumerate() {
            // A connection serves one request: another client's must not pass as this one's.
            assert_eq!((client.get("/a").text(), client.get("/b").text()), ("/a".into(), "/b".into()));
            let (from, to) = (local(client), address(&proxy));
            let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
            let expected = match version {
                "v1" => format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), to.port()).into_bytes(),
                _ => [b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01", &ports[..]].concat(),
            };
            let headers = stripper.headers(2 * at + 2);
            assert_eq!(headers[2 * at..], [expected.clone(), expected], "{version}");
        }
        assert_eq!(backend.connections.load(Ordering::SeqCst), 4);
        assert_eq!(backend.request(1).head.get("connection"), Some("close".into()), "the backend closes first");
        drop((one, two));
        settle(&proxy);
    }
}

#[test]
fn a_backend_that_keeps_its_connection_is_left() {
    let backend = Backend::start(|exchange| {
        exchange.ok("kept");
        // Until the proxy closes.
        assert!(exchange.wire.rest().is_empty());
        exchange.close();
    });
    let stripper = Stripper::in_front_of(backend.address);
    let proxy = start(&[stripper.port], "send-proxy-protocol = \"v1\"\n");
    let mut client = connect(&proxy);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "kept");
    }
    assert_eq!(backend.request(3).head.get("connection"), Some("close".into()));
}

#[test]
fn tunnels_tell_their_clients() {
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
        let bytes = exchange.wire.exactly(5).unwrap_or_default();
        exchange.raw(bytes);
        exchange.close();
    });
    let stripper = Stripper::in_front_of(backend.address);
    let proxy = start(&[stripper.port], "send-proxy-protocol = \"v2\"\n");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().head.status(), 101);
    client.send("hello");
    assert_eq!(client.exactly(5), Some(b"hello".to_vec()));
    assert_eq!(backend.request(1).head.get("connection"), Some("upgrade".into()));
}

#[test]
fn a_stated_client_is_told_on() {
    let backend = Backend::echo();
    let stripper = Stripper::in_front_of(backend.address);
    let proxy = start(&[stripper.port], &format!("{ACCEPT}send-proxy-protocol = \"v1\"\n"));
    let mut client = connect(&proxy);
    client.send(V2);
    assert_eq!(client.get("/a").text(), "/a");
    assert_eq!(stripper.headers(1)[0], V1);
}

#[test]
fn connections_of_the_proxy_itself_say_so() {
    for (version, expected) in [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0")] {
        let backend = Backend::echo();
        let stripper = Stripper::in_front_of(backend.address);
        let _proxy = start(&[stripper.port], &format!("send-proxy-protocol = \"{version}\"\nhealth = \"/h\"\n"));
        assert_eq!(stripper.headers(1)[0], expected);
        assert_eq!(backend.request(1).head.target(), "/h");
    }
}

#[test]
fn the_header_to_a_backend_comes_before_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let stripper = Stripper::in_front_of(certificates.in_front_of(backend.address, "server", false));
    let text = format!(
        "listen = \"127.0.0.1:0\"\nto = [\"https://localhost:{}\"]\nsend-proxy-protocol = \"v2\"\n[backend-tls]\nca = {}",
        stripper.port.port(),
        certificates.value("ca.pem")
    );
    let proxy = start_with(&text).expect("a proxy");
    assert_eq!(connect(&proxy).get("/a").text(), "/a");
    assert!(stripper.headers(1)[0].starts_with(b"\r\n\r\n\0\r\nQUIT\n!\x11"));
}

#[test]
fn a_flood_of_headers_keeps_nobody_out() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &format!("connections = 8\n{ACCEPT}"));
    let halves: Vec<_> = (0..100)
        .map(|at| {
            let mut stream = TcpStream::connect(address(&proxy)).unwrap();
            let _ = stream.write_all(&V1[..at % V1.len()]);
            stream
        })
        .collect();
    let mut client = connect(&proxy);
    client.send(V1);
    assert_eq!(client.get("/a").text(), "/a");
    drop(halves);
}
