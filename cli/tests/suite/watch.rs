//! `leeward watch` on listeners of the test's own and on a stopped server.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};

use leeward_testkit::require::Requirement;
use serde_json::Value;

/// A child that is killed at the end of its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn leeward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).output().unwrap()
}

/// The only listener in the result of a look at `address`.
fn look(address: &str, flags: &[&str]) -> Value {
    let output = leeward(&[&["watch", address, "--once", "--json"], flags].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["listeners"].as_array().map(Vec::len), Some(1), "{report}");
    report["listeners"][0].take()
}

/// A listener with connections that each have sent a request.
fn waiting(address: &str, count: usize) -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind(address).unwrap();
    let clients = (0..count).map(|_| {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        client
    });
    let clients = clients.collect();
    (listener, clients)
}

#[test]
fn connections_that_nobody_accepts_are_seen_and_named() {
    let (listener, _clients) = waiting("127.0.0.1:0", 3);
    let report = look(&listener.local_addr().unwrap().to_string(), &[]);
    assert_eq!(report["cause"], "accept", "{report}");
    assert_eq!(report["unread"], 3.0, "{report}");
    assert!(report["sentence"].as_str().unwrap().contains("3 wait to be accepted"), "{report}");
    // They wait from before the look on: the age has no upper bound.
    assert!(report["oldest_unread_ms"]["at_least"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["oldest_unread_ms"]["at_most"].is_null(), "{report}");
    assert_eq!(report["processes"][0]["pid"], std::process::id(), "{report}");
}

#[test]
fn a_listener_without_work_has_nothing_in_front_of_it() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let report = look(&listener.local_addr().unwrap().to_string(), &["--what-if", "--slo", "50ms"]);
    assert_eq!((&report["cause"], &report["connections"]), (&"none".into(), &0.0.into()), "{report}");
    assert_eq!(report["what_if"]["refused_share"], 0.0, "{report}");
}

#[test]
fn requests_that_are_read_and_not_answered_are_inside() {
    use std::io::Read;
    let (listener, _clients) = waiting("127.0.0.1:0", 4);
    let mut accepted: Vec<TcpStream> = (0..4).map(|_| listener.accept().unwrap().0).collect();
    accepted.iter_mut().for_each(|server| {
        let _ = server.read(&mut [0; 64]).unwrap();
    });
    let report = look(&format!(":{}", listener.local_addr().unwrap().port()), &[]);
    assert_eq!((&report["cause"], &report["inside"]), (&"unknown".into(), &4.0.into()), "{report}");
    assert!(report["sentence"].as_str().unwrap().contains("take long inside"), "{report}");
}

/// Both ends of a connection on which the client asks for the `asked`th time as soon as it has its
/// answer of two segments, and waits.
fn asked_again_at_once(listener: &TcpListener, asked: usize) -> (TcpStream, TcpStream) {
    use std::io::Read;
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    client.write_all(b"question").unwrap();
    for _ in 1..asked {
        server.read_exact(&mut [0; 8]).unwrap();
        server.write_all(b"head").unwrap();
        server.write_all(b"body").unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
        client.write_all(b"question").unwrap();
    }
    server.read_exact(&mut [0; 8]).unwrap();
    (client, server)
}

#[test]
fn clients_that_ask_again_at_once_have_their_requests_inside() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _ends: Vec<_> = [3, 3, 3, 2, 4].map(|asked| asked_again_at_once(&listener, asked)).into();
    let report = look(&listener.local_addr().unwrap().to_string(), &[]);
    // All that the first look told, others may need a second one.
    assert!(report["inside"].as_f64().unwrap() > 4.0, "{report}");
    assert_eq!(report["cause"], "unknown", "{report}");
}

#[test]
fn a_stopped_process_is_named() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once(" on ")?.1.split(' ').next()?.to_owned())).unwrap();
    let pid = child.0.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let by_address = look(&address, &[]);
    assert_eq!(by_address["cause"], "stopped", "{by_address}");
    assert_eq!(by_address["next"], format!("`kill -CONT {pid}` lets a process go on that a signal stopped"));
    assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
}

#[test]
fn a_unix_socket_is_watched_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    let report = look(path.to_str().unwrap(), &[]);
    assert_eq!((&report["cause"], &report["accept_queue"]["length"]), (&"accept".into(), &1.0.into()), "{report}");
}

#[test]
fn what_cannot_be_watched_is_one_sentence() {
    let unused = leeward_testkit::net::vacant_address().to_string();
    for (arguments, code, part) in [
        (&[unused.as_str(), "--once"][..], 1, "nothing listens on 127.0.0.1:"),
        (&["/no/such.sock", "--once"], 1, "nothing listens on unix:/no/such.sock"),
        (&["example.com:80"], 2, "is no address: expected :PORT, HOST:PORT, or the path"),
        (&["--pid", "4194305"], 2, "no process has the number 4194305"),
        (&["--netns", "/no/such"], 1, "network namespace /no/such"),
        (&["--what-if"], 2, "--slo"),
        (&[":1", "--json", "--prometheus"], 2, "cannot be used with"),
    ] {
        let output = leeward(&[&["watch"], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(part) && error.lines().count() == 1, "{arguments:?}: {error}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    }
}

#[test]
fn a_stream_of_results_ends_with_its_reader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["watch", &address, "--json", "--interval", "200ms"])
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(report["listeners"][0]["address"], address);
    }
    drop(lines);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn prometheus_can_read_the_metrics() {
    let (listener, _clients) = waiting("127.0.0.1:0", 1);
    let output = leeward(&["watch", &listener.local_addr().unwrap().to_string(), "--once", "--prometheus"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("cause=\"accept\"} 1\n") && text.contains("cause=\"cpu\"} 0\n"), "{text}");
    if Command::new("promtool").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("promtool is not in the path");
    }
    let mut check = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    assert!(check.wait().unwrap().success(), "{text}");
}
