//! `leeward serve --otlp`: its exports, parsed by OpenTelemetry's own definitions, and a missing
//! receiver.

use crate::architecture::root;
use leeward_testkit::require::Requirement;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server that is killed at the end of its test.
struct Server(Child);

impl Server {
    fn start(flags: &[&str]) -> Server {
        let all = [&["serve", "--listen", "127.0.0.1:0", "--idle", "50us", "--otlp-every", "200ms"], flags].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
        Server(command.args(all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives and answers an export; returns its body.
fn export(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(&mut stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn opentelemetry_reads_the_metrics() {
    let definitions = root().join("target/otlp");
    if !definitions.join("opentelemetry").is_dir() {
        return Requirement::Otlp.missing("no target/otlp (scripts/setup otlp)");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = format!("http://{}", listener.local_addr().unwrap());
    let _server = Server::start(&["--otlp", &receiver, "--service", "echo"]);
    let (_, body) = (export(&listener), export(&listener));
    let mut read = Command::new("python3")
        .arg(root().join("tests/otlp/read.py"))
        .env("PYTHONPATH", &definitions)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    read.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = read.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{body}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "resource service.name leeward-echo",
        "metric leeward.requests.arrived sum {request} 1 0.0",
        "metric leeward.queue.delay histogram s 2 0",
        "metric leeward.slo.duration gauge s 1 ",
        // The second export counts the first one.
        "metric leeward.otlp.exports sum {export} 4 1.0",
    ] {
        assert!(printed.lines().any(|found| found.starts_with(line)), "no `{line}` in:\n{printed}");
    }
}

#[test]
fn an_unreachable_receiver_is_reported_and_the_server_keeps_running() {
    // A port at which no server listens.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Server::start(&["--otlp", &format!("http://{address}"), "--admin", "127.0.0.1:0"]);
    let mut out = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let admin = out.find_map(|line| Some(line.strip_prefix("admin: http://")?.trim_end_matches('/').to_string()));
    // A note on how slowly the machine wakes its cores may come first.
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| !line.starts_with("note: ")).unwrap();
    assert!(line.starts_with("OTLP: http://127.0.0.1:") && line.contains("can't be reached"), "{line}");
    let admin = admin.unwrap();
    let mut stream = TcpStream::connect(&admin).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {admin}\r\n\r\n").unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert!(received.contains("leeward_otlp_exports_total{result=\"unreachable\"} "), "{received}");
}

#[test]
fn invalid_otlp_addresses_are_rejected_in_one_line() {
    for (flags, words) in [
        (
            ["--otlp", "127.0.0.1:4318"],
            "error: --otlp `127.0.0.1:4318`: no http:// at the beginning; accepted: http://",
        ),
        (["--otlp", "https://a/"], "error: --otlp `https://a/`: exports are not encrypted"),
        (["--otlp-every", "1ms"], "error: --otlp-every `1ms`; accepted: 100ms to 3600s"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
        let output = command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.starts_with(words) && text.lines().count() == 1, "{text}");
    }
}
