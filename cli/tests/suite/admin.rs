//! The admin port of the built program.
//!
//! - Metrics equal the client's counts, and `leeward why` explains the rejections of clients.
//! - Sockets and readiness of systemd, completions and man pages work.
//! - The files of `examples` and `packaging` are valid.

use crate::architecture::root;
use crate::server::leeward;
use leeward_testkit::require::Requirement;
use leeward_testkit::wait::until;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leeward");

/// A server with an admin port.
pub(crate) struct Server {
    child: Child,
    listen: String,
    admin: String,
    more: Vec<String>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--idle", "50us"]).args(arguments);
        Server::spawn(command)
    }

    fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (mut listen, mut more) = (String::new(), Vec::new());
        let admin = loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the server has ended");
            if let Some(address) = line.strip_prefix("admin: http://") {
                break address.trim_end().trim_end_matches('/').to_string();
            } else if let Some((_, rest)) = line.split_once(" on ").filter(|_| line.starts_with("serving ")) {
                listen = rest.split(' ').next().unwrap().into();
            } else {
                more.push(line.trim_end().to_string());
            }
        };
        // The test does not read the rest of the output, but a full pipe would block the server.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        Server { child, listen, admin, more }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.admin, path)
    }

    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.get("/metrics").1;
        let samples = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// Loads the server, and returns the client's report.
    pub(crate) fn load(&self, arguments: &[&str]) -> Value {
        let all = [&["load", &self.listen, "--json"], arguments].concat();
        let output = Command::new(PROGRAM).args(all).output().unwrap();
        // The generator is late on a busy machine, which does not matter for counts.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn why(&self, id: &str) -> String {
        let output = leeward(&["why", id, &self.admin], Path::new("."));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(admin: &str, path: &str) -> (u16, String) {
    get_as(admin, path, "*/*")
}

fn get_as(admin: &str, path: &str, accept: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {admin}\r\naccept: {accept}\r\n\r\n").unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.into())
}

/// More load than one core can serve, from clients without credits.
pub(crate) const OVERLOAD: [&str; 12] = [
    "--admission",
    "none",
    "--demand",
    "3x",
    "--duration",
    "2s",
    "--service",
    "exp:100us",
    "--slo",
    "1ms",
    "--clients",
    "20",
];

#[test]
fn metrics_equal_the_clients_counts() {
    // Without control: on a machine that is busy with other tests Breakwater would reject now and
    // then.
    let server = Server::start(&["--slo", "5ms", "--service", "echo", "--admission", "none"]);
    let report = server.load(&[
        "--admission",
        "none",
        "--demand",
        "2k",
        "--duration",
        "2s",
        "--clients",
        "10",
        "--service",
        "echo",
    ]);
    let total = |key: &str| report["totals"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {report}"));
    let completed =
        server.metric("leeward_requests_in_time_total", "") + server.metric("leeward_requests_late_total", "");
    let of_client = total("completed");
    assert!((completed - of_client).abs() <= of_client * 0.02, "{completed} of {of_client}: {report}");
    let admitted = server.metric("leeward_admission_decisions_total", "decision=\"admitted\"");
    assert_eq!(admitted, server.metric("leeward_requests_arrived_total", ""), "nothing was refused");
    assert_eq!(server.metric("leeward_queue_delay_seconds_count", "stage=\"worker\""), admitted);
    assert_eq!(server.metric("leeward_queue_delay_seconds_count", "stage=\"socket\""), admitted);
}

#[test]
fn prometheus_reads_the_metrics() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("promtool is not in the path");
    }
    let server = Server::start(&["--service", "kv", "--memcached", "127.0.0.1:0"]);
    let text = server.get("/metrics").1;
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.is_empty(), "{printed}");
}

#[test]
fn prometheus_reads_the_rules() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("promtool is not in the path");
    }
    let commands =
        [["check", "config", "prometheus.yml"], ["check", "rules", "rules.yml"], ["test", "rules", "rules-test.yml"]];
    for command in commands {
        let folder = root().join("packaging/prometheus");
        let output = Command::new("promtool").args(command).current_dir(folder).output().unwrap();
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{printed}");
    }
    // The rules name existing metrics.
    let server = Server::start(&[]);
    let metrics = server.get("/metrics").1;
    let rules = std::fs::read_to_string(root().join("packaging/prometheus/rules.yml")).unwrap();
    let names =
        rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("leeward_"));
    // There are no locks here, and no backends.
    for name in names.filter(|name| !name.starts_with("leeward_lock") && !name.starts_with("leeward_proxy_backend")) {
        assert!(metrics.contains(name), "no {name} in:\n{metrics}");
    }
}

#[test]
fn responses_costs_and_exemplars_are_reported_by_method() {
    let server = Server::start(&["--slo", "1ms", "--admission", "throttle"]);
    server.load(&OVERLOAD);
    // Rejected requests are answered at once: the client's rejections are counted.
    let parts = server.metric("leeward_requests_in_time_total", "route=\"0\"")
        + server.metric("leeward_requests_late_total", "route=\"0\"");
    let costs = server.metric("leeward_request_cost_seconds_count", "route=\"0\"");
    // A request whose client has gone is not answered, although it was executed.
    assert!(parts > 0.0 && parts <= costs && parts >= costs * 0.98, "{parts} answers, {costs} costs");
    let spent = server.metric("leeward_request_cost_seconds_sum", "route=\"0\"");
    assert!(spent > 0.0, "{spent} s");
    let open = get_as(&server.admin, "/metrics", "application/openmetrics-text").1;
    let example = |start: &str| {
        let line = open.lines().find(|line| line.starts_with(start) && line.contains("reason=\"delay\"")).unwrap();
        let (_, rest) = line.split_once(" # {decision=\"").unwrap_or_else(|| panic!("no exemplar in {line}"));
        rest.split('"').next().unwrap().to_string()
    };
    let text = server.why(&example("leeward_admission_decisions_total{"));
    assert!(text.contains(": delay. "), "{text}");
}

/// Rejections of a server for `reason`, as its admin port lists them.
fn rejections(server: &Server, reason: &str) -> Vec<Value> {
    let (status, body) = server.get(&format!("/debug/decisions?n=1000&reason={reason}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["decisions"].as_array().unwrap().clone()
}

#[test]
fn why_gives_the_true_reason_of_each_rejection() {
    // Each controller rejects for its own reason; its records must support the sentence.
    let limit = |flags: &[&str], reason: &str, check: &dyn Fn(&Value) -> bool| {
        let server = Server::start(flags);
        server.load(&OVERLOAD);
        let found = rejections(&server, reason);
        assert!(!found.is_empty(), "{reason}: nothing was refused by {flags:?}");
        for decision in &found {
            assert!(check(decision), "{decision}");
        }
        let text = server.why(found[0]["id"].as_str().unwrap());
        assert!(text.contains(&format!(" UTC: {reason}. ")) && text.contains("Within half a second"), "{text}");
        let counted = server.metric("leeward_admission_decisions_total", &format!("reason=\"{reason}\""));
        assert!(counted >= found.len() as f64, "{counted} of {}", found.len());
        assert!(server.get(&format!("/debug/why?id={}", found[0]["id"].as_str().unwrap())).0 == 200);
    };
    limit(&["--slo", "1ms", "--admission", "throttle"], "delay", &|decision| {
        // 40 % of the objective.
        decision["bound"] == 400_000 && decision["delay_ns"].as_u64() >= Some(400_000)
    });
    // DAGOR rejects the least important requests first, and its level is never below 1.
    limit(&["--slo", "1ms", "--admission", "dagor"], "level", &|decision| decision["priority"].as_u64() > Some(1));
    limit(&["--slo", "1ms", "--admission", "breakwater"], "delay", &|decision| {
        // Twice the target, on arrival or when dequeued.
        let longest = decision["delay_ns"].as_u64().max(decision["waited_ns"].as_u64());
        decision["bound"] == 800_000 && longest >= Some(800_000)
    });
}

/// A frame of docs/protocol.md: kind, number, method or longest payload, priority, payload.
fn frame(kind: u8, number: u64, shared: u32, priority: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; 64];
    head[..4].copy_from_slice(&[b'L', b'W', 1, kind]);
    head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[40..44].copy_from_slice(&shared.to_le_bytes());
    head[60] = priority;
    [&head[..], payload].concat()
}

/// Sends this many calls without waiting, and returns each rejection's code and message.
fn rejections_of_calls(server: &Server, calls: u64) -> Vec<(u8, String)> {
    let mut stream = TcpStream::connect(&server.listen).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sent = frame(1, 0, 1 << 20, 0, b"");
    (1..=calls).for_each(|number| sent.extend(frame(3, number, 0, 64, &50_000_u64.to_le_bytes())));
    stream.write_all(&sent).unwrap();
    let (mut drops, mut answers) = (Vec::new(), 0);
    while answers < calls {
        let mut head = [0; 64];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize];
        stream.read_exact(&mut payload).unwrap();
        answers += u64::from(matches!(head[3], 4..=6));
        if head[3] == 5 {
            drops.push((head[62], String::from_utf8(payload).unwrap()));
        }
    }
    drops
}

#[test]
fn a_rejection_carries_the_decision_id_that_why_explains() {
    // Calls that arrive while others wait are rejected. An idle core may take all calls at the
    // instant of their arrival, so that none has waited: such a try proves nothing.
    let server = Server::start(&["--admission", "throttle", "--set", "threshold=1ns"]);
    let rejected = (0..100).map(|_| rejections_of_calls(&server, 16)).find(|rejected| !rejected.is_empty());
    for (code, message) in rejected.expect("nothing was refused in a hundred tries") {
        let id = message.strip_prefix("decision ").unwrap_or_else(|| panic!("{code}: {message}"));
        let text = server.why(id);
        assert!(code == 1 && text.contains(": delay. ") && text.contains("; the limit is 1 ns. "), "{text}");
    }
}

#[test]
fn calls_without_credit_have_a_reason_of_their_own() {
    // No busy machine misses this objective, so nothing is rejected for delay.
    let server = Server::start(&["--admission", "breakwater", "--slo", "10s"]);
    let rejected = rejections_of_calls(&server, 8);
    let without = rejected.iter().filter(|(code, _)| *code == 5).count();
    let found = rejections(&server, "credit");
    assert!(without > 0 && found.len() == without, "{rejected:?}");
    let text = server.why(found[0]["id"].as_str().unwrap());
    assert!(text.contains("The client's window was used up"), "{text}");
}

#[test]
fn invalid_decision_ids_are_rejected_in_one_line() {
    let server = Server::start(&[]);
    for (id, part) in [("77", "no decision 77"), ("xyz", "hexadecimal"), ("0", "hexadecimal")] {
        let output = leeward(&["why", id, &server.admin], Path::new("."));
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.contains(part), "{words}");
    }
    // The server's own port is not an admin port.
    let output = leeward(&["why", "1", &server.listen], Path::new("."));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("speaks Leeward's protocol"), "{words}");
}

#[test]
fn an_admin_address_in_use_is_reported_at_start() {
    let server = Server::start(&[]);
    let output = leeward(&["serve", "--listen", "127.0.0.1:0", "--admin", &server.admin], Path::new("."));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("--admin: can't listen on"), "{words}");
}

#[test]
fn metrics_cover_both_ports_of_a_server() {
    let server = Server::start(&["--service", "kv", "--memcached", "127.0.0.1:0", "--admission", "none"]);
    let memcached = server.more[0].rsplit(' ').next().unwrap().to_string();
    let mut stream = TcpStream::connect(memcached).unwrap();
    stream.write_all(b"set a 0 0 1\r\nx\r\nget a\r\nquit\r\n").unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert!(received.contains("VALUE a"), "{received}");
    assert_eq!(server.metric("leeward_requests_arrived_total", "port=\"memcached\""), 2.0);
    assert_eq!(server.metric("leeward_requests_arrived_total", "port=\"rpc\""), 0.0);
    let config = server.get("/debug/config").1;
    assert!(config.contains("service = \"kv\"\n") && config.contains("admin = \"127.0.0.1:0\"\n"), "{config}");
}

#[test]
fn a_client_of_a_hundred_lines_calls_the_server() {
    let server = Server::start(&["--service", "echo", "--admission", "none"]);
    let client = root().join("examples/python/leeward_client.py");
    let output = Command::new("python3").arg(client).args([&server.listen, "hello, größer"]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "hello, größer\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(server.metric("leeward_requests_arrived_total", ""), 1.0);
}

#[test]
fn example_config_files_are_valid() {
    for file in ["examples/serve.toml", "packaging/systemd/serve.toml"] {
        let path = root().join(file);
        let output = leeward(&["serve", "--print-config", "--config", path.to_str().unwrap()], Path::new("."));
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Replaces `systemd-socket-activate`, which is not installed everywhere: it only sets descriptor 3
/// and two variables.
#[test]
fn systemd_sockets_are_used_and_readiness_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let notify_socket = UnixDatagram::bind(&path).unwrap();
    notify_socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let code = "import os, socket, sys\n\
                pairs = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]\n\
                fds = [os.dup(each.fileno()) for each in pairs]\n\
                fds = [os.dup2(fd, 20 + place) for place, fd in enumerate(fds)]\n\
                [os.dup2(fd, 3 + place) for place, fd in enumerate(fds)]\n\
                os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))\n\
                os.execv(sys.argv[1], sys.argv[1:])\n";
    let mut command = Command::new("python3");
    command.args(["-c", code, PROGRAM, "serve", "--idle", "50us", "--service", "echo"]).env("NOTIFY_SOCKET", &path);
    let mut server = Server::spawn(command);
    let mut words = [0; 4096];
    let length = notify_socket.recv(&mut words).unwrap();
    let text = String::from_utf8_lossy(&words[..length]);
    assert!(text.contains("READY=1") && text.contains(&server.listen), "{text}");
    assert_eq!(server.get("/readyz").0, 200);
    let report = server.load(&["--demand", "500", "--duration", "500ms", "--clients", "5", "--service", "echo"]);
    assert!(report["totals"]["completed"].as_f64() > Some(0.0), "{report}");
    let stopped = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let length = notify_socket.recv(&mut words).unwrap();
    assert!(String::from_utf8_lossy(&words[..length]).contains("STOPPING=1"));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_tier_reports_a_leaf_that_dies_and_returns() {
    const LEAF: [&str; 6] = ["--service", "wait", "--admission", "none", "--idle", "block"];
    let folder = tempfile::tempdir().unwrap();
    let (folder, path) = (folder.path(), folder.path().join("errors"));
    let leaf = crate::server::Server::start(&LEAF, folder);
    let address = leaf.1.clone();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--admission", "none"]);
    command.args(["--service", "tier", "--leaves", &address, "--threading", "SDB1-2"]);
    let tier = Server::spawn({
        command.stderr(std::fs::File::create(&path).unwrap());
        command
    });
    let has_said = |line: String| std::fs::read_to_string(&path).unwrap().lines().any(|said| said == line);
    until("the leaf is there", || tier.get("/readyz").0 == 200);
    drop(leaf);
    until("the tier is not ready", || tier.get("/readyz") == (503, "no leaf\n".into()));
    assert_eq!(tier.metric("leeward_leaf_connections", &address), 0.0);
    let top = leeward(&["top", &tier.listen, "--plain", "--interval", "100ms"], folder);
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(top.contains(&format!("leaves    1 of 1 away ({address}); ")), "{top}");
    until("the tier says so", || has_said(format!("warning: leaf {address} is away; 1 of 1 are")));
    // Nobody asks a tier that is not ready.
    let _back = crate::server::Server::start_at(&address, &LEAF, folder);
    until("the tier is ready", || tier.get("/readyz").0 == 200);
    until("the tier says so", || has_said(format!("leaf {address} is back")));
}

#[test]
fn completions_and_manuals_contain_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = leeward(&["completions", shell], folder.path());
        let text = String::from_utf8(output.stdout).unwrap();
        for word in ["serve", "why", "completions", "admin"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let bash = leeward(&["completions", "bash"], folder.path()).stdout;
    std::fs::write(folder.path().join("bash"), bash).unwrap();
    let checked = Command::new("bash").arg("-n").arg(folder.path().join("bash")).status().unwrap();
    assert!(checked.success(), "bash can not read its completions");
    assert!(leeward(&["man", "man"], folder.path()).status.success());
    let serve = std::fs::read_to_string(folder.path().join("man/leeward-serve.1")).unwrap();
    assert!(serve.contains(".TH leeward-serve 1") && serve.contains("admin"), "{}", &serve[..200]);
    assert!(std::fs::read_dir(folder.path().join("man")).unwrap().count() > 15);
}
