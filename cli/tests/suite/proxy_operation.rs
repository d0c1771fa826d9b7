//! `leeward proxy` as a process: SIGHUP, SIGUSR2, inherited sockets, systemd's notifications. Does
//! not contain the effects of settings (`leeward-proxy`).

use leeward_testkit::wait::{LIVENESS, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leeward");

/// A backend that answers each request by 200 and its path.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((line, _)) = head(&mut reader) {
                    let path = line.split(' ').nth(1).unwrap_or_default();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The first line of a head, and its other lines in lower case; none once the peer has gone.
fn head(reader: &mut impl BufRead) -> Option<(String, Vec<String>)> {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|_| line.ends_with('\n')).map(|_| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut rest = Vec::new();
    loop {
        match line()? {
            empty if empty.is_empty() => return Some((first, rest)),
            header => rest.push(header.to_ascii_lowercase()),
        }
    }
}

/// A client's connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIVENESS))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    /// Status, body, and whether the connection ends; none: the answer is not complete.
    fn get(&mut self, path: &str) -> Option<(u16, String, bool)> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        self.0.get_ref().write_all(request.as_bytes()).ok()?;
        let (line, headers) = head(&mut self.0)?;
        let length = headers.iter().find_map(|header| header.strip_prefix("content-length: "))?.parse().ok()?;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        let is_last = headers.iter().any(|header| header == "connection: close");
        let status = line.split(' ').nth(1)?.parse().ok()?;
        Some((status, String::from_utf8_lossy(&body).into_owned(), is_last))
    }
}

/// A proxy, and its successors: what they say, and who they are.
struct Process {
    child: Child,
    folder: tempfile::TempDir,
    address: SocketAddr,
    admin: SocketAddr,
    /// Lines of stderr so far, of all of them.
    said: Arc<Mutex<String>>,
}

impl Process {
    fn start(settings: &str) -> Process {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.toml"), with_listeners(settings)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["proxy", "--config", "p.toml"]);
        Process::spawn(folder, command)
    }

    fn spawn(folder: tempfile::TempDir, mut command: Command) -> Process {
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let record = Arc::clone(&said);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut piece) {
                record.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        let mut line = || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line
        };
        let address = between(&line(), "Listens on ", ",").parse().unwrap();
        let admin = between(&line(), "http://", "/").parse().unwrap();
        thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Process { child, folder, address, admin, said }
    }

    fn write(&self, settings: &str) {
        let (new, file) = (self.file("new"), self.file("p.toml"));
        std::fs::write(&new, with_listeners(settings)).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits until stderr has said this so many times.
    fn says(&self, text: &str, times: usize) {
        let count = || self.said.lock().unwrap().matches(text).count();
        let start = std::time::Instant::now();
        while count() < times {
            assert!(start.elapsed() < LIVENESS, "no {times} × {text:?} in {}", self.said.lock().unwrap());
            thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// A page of the admin port, whoever serves it.
    fn page(&self, path: &str) -> String {
        Client::connect(self.admin).unwrap().get(path).unwrap().1
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.page("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        line.trim().parse().unwrap()
    }

    fn reloads(&self, result: &str) -> f64 {
        self.metric(&format!("leeward_proxy_reloads_total{{result=\"{result}\"}}"))
    }

    /// The process that has taken over last.
    fn successor(&self) -> u32 {
        let said = self.said.lock().unwrap();
        between(said.rsplit("Process ").next().unwrap(), "", " ").parse().unwrap()
    }

    /// Has the last successor stop.
    fn stop_successor(&self) {
        let process = self.successor();
        signal(process, "TERM");
        until("the successor has ended", || TcpStream::connect(self.address).is_err());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = self.said.lock().map(|said| said.clone()).unwrap_or_default();
        for part in said.split("Process ").skip(1) {
            if let Some(process) = part.split(' ').next().and_then(|id| id.parse::<u32>().ok()) {
                let _ = Command::new("kill").args(["-9", &process.to_string()]).stderr(Stdio::null()).status();
            }
        }
    }
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
    assert!(sent.success(), "{name}");
}

fn with_listeners(settings: &str) -> String {
    format!("slo = \"20s\"\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 2\n{settings}")
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap_or_else(|| panic!("{text:?}")).0
}

fn to(backend: SocketAddr) -> String {
    format!("to = [\"{backend}\"]\n")
}

#[test]
fn sighup_takes_the_settings_anew() {
    let (one, two) = (backend(), backend());
    let process = Process::start(&to(one));
    let mut client = process.client();
    assert_eq!(client.get("/a"), Some((200, "/a".into(), false)));
    process.write(&(to(two) + "limit = \"7\"\n[[rule]]\nname = \"x\"\n"));
    process.signal("HUP");
    process.says("Settings reloaded.", 1);
    assert_eq!(client.get("/b"), Some((200, "/b".into(), false)));
    let limit = format!("leeward_proxy_backend_limit{{backend=\"{two}\"}}");
    assert_eq!((process.metric(&limit), process.reloads("applied"), process.reloads("rejected")), (7.0, 1.0, 0.0));
    assert!(process.metric("leeward_proxy_last_reload_timestamp_seconds") > 1.7e9);
    let config = process.page("/debug/config");
    assert!(config.contains("# reloads: 1 applied") && config.contains("limit = \"7\"\n"), "{config}");
    // What can't change is named.
    let text = with_listeners(&to(two)).replace("threads = 2", "threads = 1").replacen("127.0.0.1:0", "127.0.0.1:1", 1);
    let text = text.replace("127.0.0.1:0", "127.0.0.1:2");
    std::fs::write(process.file("p.toml"), text).unwrap();
    process.signal("HUP");
    process.says("not `listen`, `threads`, `admin`", 1);
    assert_eq!(client.get("/c"), Some((200, "/c".into(), false)));
}

#[test]
fn a_backend_that_goes_down_and_comes_back_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let process = Process::start(&to(address));
    let mut client = process.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").map(|(status, ..)| status), Some(502));
    }
    process.says(&format!("backend {address} is down: Connection refused"), 1);
    let _back = TcpListener::bind(address).unwrap();
    process.says(&format!("backend {address} is back"), 1);
    assert_eq!(process.said.lock().unwrap().matches("is down").count(), 1);
}

#[test]
fn a_file_with_an_error_changes_nothing() {
    let one = backend();
    let process = Process::start(&(to(one) + "limit = \"9\"\n"));
    let mut client = process.client();
    let mut rejected = 0;
    let mut check = |what: &str| {
        process.signal("HUP");
        rejected += 1;
        process.says("Settings unchanged", rejected);
        assert!(process.said.lock().unwrap().trim_end().ends_with(what) || process.said.lock().unwrap().contains(what));
        assert_eq!(client.get("/still"), Some((200, "/still".into(), false)));
        assert_eq!((process.reloads("rejected"), process.reloads("applied")), (rejected as f64, 0.0));
        assert_eq!(process.metric(&format!("leeward_proxy_backend_limit{{backend=\"{one}\"}}")), 9.0);
        assert_eq!(process.metric("leeward_proxy_last_reload_successful"), 0.0);
    };
    process.write("to = [\"nowhere\"]\n");
    check("`to`");
    process.write(&(to(one) + "[timeouts]\nfirst_byte = \"1s\"\n"));
    check("first_byte");
    process.write(&(to(one) + "access-log = \"json\"\naccess-log-file = \"/proc/none/log\"\n"));
    check("access-log-file");
    process.write(&(to(one) + "[tls]\ncertificate = \"/none.pem\"\nkey = \"/none.key\"\n"));
    check("/none");
    let file = process.file("p.toml");
    std::fs::write(&file, "").unwrap();
    check("`slo`");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    check("can't be read");
    // It takes no room on the disk.
    std::fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    check("larger than 1 MiB");
    std::fs::remove_file(&file).unwrap();
    check("can't be read");
    std::fs::create_dir(&file).unwrap();
    check("is no file");
    std::fs::remove_dir(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    check("is no file");
    std::fs::remove_file(&file).unwrap();
    process.write(&(to(one) + "limit = \"8\"\n"));
    process.signal("HUP");
    process.says("Settings reloaded.", 1);
    assert_eq!(process.metric("leeward_proxy_last_reload_successful"), 1.0);
}

/// Threads that ask until they are told to stop. A request is lost if it gets no whole answer.
struct Load {
    stops: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(address: SocketAddr) -> Load {
        let (stops, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let run = |index: u64| {
            let (stops, answered) = (Arc::clone(&stops), Arc::clone(&answered));
            thread::spawn(move || {
                let (mut lost, mut client, mut count) = (Vec::new(), None, 0u64);
                while !stops.load(Ordering::SeqCst) {
                    // Odd ones open a connection for each request.
                    let mut of = match client.take() {
                        Some(client) => client,
                        None => match Client::connect(address) {
                            Ok(client) => client,
                            Err(error) => {
                                lost.push(format!("client {index}, request {count}: {error}"));
                                continue;
                            }
                        },
                    };
                    let path = format!("/{index}/{count}");
                    count += 1;
                    match of.get(&path) {
                        Some((200, body, is_last)) if body == path => {
                            answered.fetch_add(1, Ordering::SeqCst);
                            client = (!is_last && index.is_multiple_of(2)).then_some(of);
                        }
                        other => lost.push(format!("{path}: {other:?}")),
                    }
                }
                lost
            })
        };
        let threads = (0..6).map(run).collect();
        Load { stops, answered, threads }
    }

    /// Waits until so many more were answered.
    fn more(&self, count: u64) {
        let goal = self.answered.load(Ordering::SeqCst) + count;
        until("requests are answered", || {
            assert!(!self.threads.iter().any(thread::JoinHandle::is_finished));
            self.answered.load(Ordering::SeqCst) >= goal
        });
    }

    /// What was lost.
    fn stop(self) -> Vec<String> {
        self.stops.store(true, Ordering::SeqCst);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

#[test]
fn no_request_is_lost_by_reloads_and_upgrades() {
    let (one, two) = (backend(), backend());
    let mut process = Process::start(&to(one));
    let load = Load::start(process.address);
    for round in 0..5 {
        process.write(&to(if round % 2 == 0 { two } else { one }));
        process.signal("HUP");
        process.says("Settings reloaded.", round + 1);
        load.more(200);
    }
    let mut current = process.child.id();
    for round in 0..3 {
        signal(current, "USR2");
        process.says("has taken over", round + 1);
        current = process.successor();
        load.more(300);
        signal(current, "HUP");
        process.says("Settings reloaded.", 6 + round);
        load.more(200);
    }
    assert_eq!(load.stop(), [""; 0]);
    // The first one has no connections any more.
    assert!(process.child.wait().unwrap().success());
    assert_eq!(process.client().get("/end").unwrap().1, "/end");
    process.stop_successor();
}

#[test]
fn a_storm_of_sighups_loses_nothing() {
    let one = backend();
    let process = Process::start(&to(one));
    let load = Load::start(process.address);
    let mut kill = Command::new("sh");
    let storm = "for i in $(seq 100); do kill -HUP $0; done";
    assert!(kill.args(["-c", storm, &process.child.id().to_string()]).status().unwrap().success());
    load.more(500);
    assert_eq!(load.stop(), [""; 0]);
    assert!((1.0..=100.0).contains(&process.reloads("applied")));
}

#[test]
fn idle_connections_are_answered_after_an_upgrade() {
    let mut process = Process::start(&to(backend()));
    let mut idle: Vec<Client> = (0..4).map(|_| process.client()).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.get("/a").unwrap().0, 200));
    process.signal("USR2");
    process.says("has taken over", 1);
    // A second request for an upgrade is the successor's, once it has taken over.
    process.signal("USR2");
    for client in &mut idle {
        // The threads of the old process learn of the end one after the other.
        until("the announcement of the end", || {
            let (status, path, ends) = client.get("/b").unwrap();
            assert_eq!((status, path.as_str()), (200, "/b"));
            ends
        });
    }
    assert!(process.child.wait().unwrap().success());
    assert_eq!(process.said.lock().unwrap().matches("Starts the program anew").count(), 1);
    process.stop_successor();
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_process() {
    let process = Process::start(&to(backend()));
    let mut client = process.client();
    process.write("to = []\n");
    process.signal("USR2");
    process.says("did not take over: it ended with exit status: 2. This one goes on.", 1);
    assert_eq!(client.get("/a"), Some((200, "/a".into(), false)));
    assert_eq!(process.page("/readyz").trim(), "ready");
}

/// A copy of the program that the test may replace.
fn copy(folder: &Path) -> PathBuf {
    let path = folder.join("leeward");
    std::fs::hard_link(PROGRAM, &path).or_else(|_| std::fs::copy(PROGRAM, &path).map(drop)).unwrap();
    path
}

#[test]
fn the_new_file_of_the_program_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let program = copy(folder.path());
    std::fs::write(folder.path().join("p.toml"), with_listeners(&to(backend()))).unwrap();
    let mut command = Command::new(&program);
    command.args(["proxy", "--config", "p.toml"]);
    let mut process = Process::spawn(folder, command);
    let replace = |content: &[u8]| {
        let new = process.file("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, &program).unwrap();
    };
    let mut failures = 0;
    let mut fails = || {
        process.signal("USR2");
        failures += 1;
        process.says("This one goes on.", failures);
        assert_eq!(process.client().get("/a").unwrap().0, 200);
    };
    replace(&[0x7f, b'E', b'L', b'F', 1, 2, 3]);
    fails();
    replace(b"#!/bin/sh\nexit 0\n");
    fails();
    replace(b"#!/bin/sh\nkill -9 $$\n");
    fails();
    std::fs::remove_file(&program).unwrap();
    fails();
    // The right one again; the old process is killed before it has drained.
    copy(process.folder.path());
    process.signal("USR2");
    process.says("has taken over", 1);
    process.signal("KILL");
    let _ = process.child.wait();
    assert_eq!(process.client().get("/b").unwrap().1, "/b");
    assert_eq!(process.page("/readyz").trim(), "ready");
    process.stop_successor();
}

#[test]
fn a_new_process_goes_on_if_the_old_one_is_killed_before_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let program = copy(folder.path());
    let real = folder.path().join("real");
    std::fs::rename(&program, &real).unwrap();
    std::os::unix::fs::symlink(&real, &program).unwrap();
    std::fs::write(folder.path().join("p.toml"), with_listeners(&to(backend()))).unwrap();
    let mut command = Command::new(&program);
    command.args(["proxy", "--config", "p.toml"]);
    let mut process = Process::spawn(folder, command);
    // The next one waits until the test lets it go.
    let script = format!(
        "#!/bin/sh\necho $$ > started.new; mv started.new started\nwhile [ ! -e go ]; do sleep 0.01; done\nexec {} \"$@\"\n",
        real.display()
    );
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    process.signal("USR2");
    until("the next process has started", || process.file("started").exists());
    let next: u32 = std::fs::read_to_string(process.file("started")).unwrap().trim().parse().unwrap();
    process.signal("KILL");
    let _ = process.child.wait();
    // Nobody accepts yet; the connection waits in the socket.
    let mut early = process.client();
    std::fs::write(process.file("go"), "").unwrap();
    assert_eq!(early.get("/early").unwrap().1, "/early");
    signal(next, "TERM");
    until("it has ended", || TcpStream::connect(process.address).is_err());
}

/// Sets descriptors 3 and 4 and two variables, as systemd does.
const ACTIVATE: &str = "import os, socket, sys\n\
    pairs = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]\n\
    fds = [os.dup2(each.fileno(), 20 + place) for place, each in enumerate(pairs)]\n\
    [os.dup2(fd, 3 + place) for place, fd in enumerate(fds)]\n\
    os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))\n\
    os.execv(sys.argv[1], sys.argv[1:])\n";

#[test]
fn systemd_sockets_are_used_and_the_successor_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let notify = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    notify.set_read_timeout(Some(LIVENESS)).unwrap();
    let message = || {
        let mut words = [0; 4096];
        let length = notify.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let settings = with_listeners(&to(backend())).replace("127.0.0.1:0", "systemd");
    std::fs::write(folder.path().join("p.toml"), settings).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE, PROGRAM, "proxy", "--config", "p.toml"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut process = Process::spawn(folder, command);
    let ready = message();
    assert!(ready.contains("READY=1") && ready.contains(&process.address.to_string()), "{ready}");
    assert_eq!(process.client().get("/a").unwrap().1, "/a");
    process.signal("HUP");
    assert!(message().contains("STATUS=settings reloaded"));
    process.signal("USR2");
    process.says("has taken over", 1);
    let announced = message();
    assert!(announced.contains(&format!("MAINPID={}", process.successor())), "{announced}");
    assert!(process.child.wait().unwrap().success());
    assert_eq!(process.client().get("/b").unwrap().1, "/b");
    assert_eq!(process.page("/readyz").trim(), "ready");
    // The end of the first one is no end of the service.
    process.stop_successor();
    assert!(message().contains("STOPPING=1"));
}

#[test]
fn a_missing_systemd_socket_is_an_error_that_teaches() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["proxy", "--slo", "1s", "--listen", "systemd", "--to", ":1"];
    let output = crate::server::leeward(&arguments, folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`listen`") && said.contains("leeward-proxy.socket"), "{said}");
}

#[test]
fn a_stop_during_an_upgrade_ends_both() {
    let folder = tempfile::tempdir().unwrap();
    let program = copy(folder.path());
    std::fs::write(folder.path().join("p.toml"), with_listeners(&to(backend()))).unwrap();
    let mut command = Command::new(&program);
    command.args(["proxy", "--config", "p.toml"]);
    let mut process = Process::spawn(folder, command);
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho $$ > started.new; mv started.new started\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    process.signal("USR2");
    until("the next process has started", || process.file("started").exists());
    process.signal("TERM");
    assert!(process.child.wait().unwrap().success());
    process.says("told to stop", 1);
    let next = std::fs::read_to_string(process.file("started")).unwrap();
    assert!(!Path::new("/proc").join(next.trim()).join("cmdline").exists(), "it was ended");
}
