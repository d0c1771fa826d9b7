//! `leeward serve` and `leeward load` against each other, from outside. Does not check performance.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A running server; killed if a test fails before it stops the server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args(["serve", "--listen", "127.0.0.1:0", "--idle", "block"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(" on ").nth(1).unwrap().split(' ').next().unwrap().to_string();
        Server { child, address }
    }

    /// Sends SIGTERM; returns the remaining output.
    fn stop(self) -> String {
        self.stop_with_signals(1)
    }

    /// Sends several SIGTERMs at once; returns the remaining output.
    fn stop_with_signals(mut self, signals: usize) -> String {
        let pid = self.child.id().to_string();
        for _ in 0..signals {
            assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        }
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(self.child.wait().unwrap().success());
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(address: &str, flags: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["load", address, "--json"]).args(flags).output();
    let output = output.unwrap();
    // 3: the generator was late, which does not matter here: these tests check counts, not times.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_request_has_one_end_under_any_controller() {
    for controller in ["none", "breakwater", "dagor", "seda"] {
        let objective = ["--admission", controller, "--slo", "100ms", "--rtt", "50us"];
        let server = Server::start(&objective);
        let shape = ["--clients", "20", "--demand", "2k", "--duration", "600ms", "--warmup", "100ms"];
        let report = load(&server.address, &[&objective[..], &shape].concat());
        assert_eq!(report["violations"], Value::Array(Vec::new()), "{controller}: {report}");
        let totals = &report["totals"];
        let count = |name: &str| totals[name].as_u64().unwrap();
        assert!(count("offered") > 0 && count("completed") > 0, "{controller}: {totals}");
        assert_eq!((count("failed"), count("disconnected")), (0, 0), "{controller}: {totals}");
        let printed = server.stop();
        assert!(printed.contains(&format!("{} answered", count("completed"))), "{controller}: {printed} but {totals}");
    }
}

#[test]
fn a_server_that_is_stopped_under_load_ends_every_request_once() {
    let fixed = ["--cores", "2"];
    let allocated = ["--cores", "1..3"];
    for (controller, clients, cores) in
        [("none", "8", fixed), ("breakwater", "30", fixed), ("none", "8", allocated), ("breakwater", "30", allocated)]
    {
        let objective = ["--admission", controller, "--slo", "2ms", "--rtt", "50us"];
        let server = Server::start(&[&objective[..], &cores].concat());
        let shape = [
            "--clients",
            clients,
            "--demand",
            "30k",
            "--service",
            "const:100us",
            "--duration",
            "3s",
            "--warmup",
            "100ms",
        ];
        let mut load = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args(["load", &server.address, "--json"])
            .args(objective)
            .args(shape)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Stop the server in the middle of the run, or as far as this machine has come.
        std::thread::sleep(std::time::Duration::from_millis(700));
        let printed = server.stop();
        let mut report = String::new();
        load.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        let mut complaint = String::new();
        load.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        // The server has gone: there is a report, and the exit code marks it as incomplete.
        assert_eq!(load.wait().unwrap().code(), Some(1), "{controller}: {complaint}");
        assert!(complaint.contains("all connections were lost"), "{controller}: {complaint}");
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["violations"], Value::Array(Vec::new()), "{controller}: {report}");
        let totals = &report["totals"];
        let count = |name: &str| totals[name].as_u64().unwrap();
        assert!(count("offered") > 0, "{controller}: {totals}");
        // Answers that the server counts and those that arrived differ only for responses in flight
        // at the end.
        let answered: u64 = printed.split(" answered").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(count("completed") <= answered, "{controller}: {printed} but {totals}");
    }
}

/// `timeout` sends its signal to the program and to its process group.
#[test]
fn two_signals_at_once_lose_no_results() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("calls").display().to_string();
    let objective = ["--admission", "none", "--slo", "2s", "--rtt", "50us"];
    let server = Server::start(&[&objective[..], &["--record", &recording]].concat());
    let shape = ["--clients", "8", "--closed", "4", "--service", "const:1ms", "--duration", "30s", "--warmup", "0s"];
    let load = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["load", &server.address, "--json"])
        .args([&objective[..], &shape].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    // `stop_with_signals` checks the exit code, too.
    let printed = server.stop_with_signals(2);
    assert!(printed.contains("stopped: ") && printed.contains("recorded "), "{printed}");
    let load = load.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}");
    assert!(report["totals"]["completed"].as_u64() > Some(0), "{report}");
}

/// Starts a server without control with these flags; returns it and its first line.
fn start_server(flags: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["serve", "--listen", "127.0.0.1:0", "--idle", "block", "--admission", "none"])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// `/dev/full` is a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_recording_that_ends_early_says_why() {
    let (child, line) = start_server(&["--record", "/dev/full"]);
    let address = line.split(" on ").nth(1).unwrap().split(' ').next().unwrap();
    load(address, &["--admission", "none", "--slo", "2s", "--closed", "4", "--clients", "4", "--duration", "800ms"]);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let warning = stderr.lines().find(|line| line.starts_with("warning: the recording has ended early")).unwrap();
    assert!(warning.contains("/dev/full") && warning.contains("No space left"), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
}

#[test]
fn a_load_that_is_stopped_twice_still_reports() {
    let server = Server::start(&["--admission", "none"]);
    let shape = ["--admission", "none", "--clients", "4", "--closed", "1", "--duration", "30s", "--warmup", "0s"];
    let load = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["load", &server.address, "--slo", "2s"])
        .args(shape)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-TERM", &load.id().to_string()]).status().unwrap().success());
    }
    let load = load.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&load.stdout);
    assert!(load.status.success() && printed.contains("cut short              stopped after"), "{printed}");
}

/// Loads `address` without `--json`; returns the exit code and both output streams.
fn load_text(address: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["load", address]).args(flags).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_late_generator_is_reported_first_and_by_the_exit_code() {
    let server = Server::start(&["--admission", "none"]);
    // More requests than any machine can issue in that time.
    let flags = ["--admission", "none", "--slo", "20us", "--clients", "4", "--demand", "10M", "--duration", "10ms"];
    let (code, out, err) = load_text(&server.address, &flags);
    assert_eq!(code, Some(3), "{out}{err}");
    assert!(out.starts_with("Not measured: the load generator did not keep its schedule"), "{out}");
    // Not the report's paragraph again.
    assert_eq!(err, "error: not measured: the load generator did not keep its schedule\n");
    assert!(out.contains("--slo"), "{out}");
    // Durations have three digits and a unit.
    assert!(!out.contains(" us,"), "{out}");
}

#[test]
fn a_short_load_has_a_short_warm_up() {
    let server = Server::start(&["--admission", "none"]);
    let flags = ["--admission", "none", "--slo", "1s", "--clients", "2", "--demand", "200", "--duration", "500ms"];
    let report = load(&server.address, &flags);
    assert_eq!(report["warmup_ns"].as_u64(), Some(100_000_000), "{report}");
    let (code, _, err) = load_text(&server.address, &["--duration", "1s", "--warmup", "1s"]);
    assert!(code == Some(2) && err.contains("--warmup 1s is all of --duration 1s"), "{err}");
}

#[test]
fn different_controllers_at_client_and_server_give_a_warning() {
    let server = Server::start(&["--admission", "none", "--slo", "1s"]);
    let shape = ["--slo", "1s", "--clients", "2", "--demand", "200", "--duration", "300ms"];
    let (_, _, err) = load_text(&server.address, &[&shape[..], &["--admission", "breakwater"]].concat());
    let parts = ["warning: server and client run different", "gives no credits", "`breakwater` gives credits"];
    assert!(parts.iter().all(|part| err.contains(part)), "{err}");
    let (_, _, err) = load_text(&server.address, &[&shape[..], &["--admission", "none"]].concat());
    assert!(!err.contains("different controllers"), "{err}");
    let server = Server::start(&["--slo", "1s"]);
    let (_, _, err) = load_text(&server.address, &[&shape[..], &["--admission", "none"]].concat());
    assert!(err.contains("gives credits, and `none` gives no credits"), "{err}");
}

#[test]
fn a_load_for_another_service_is_a_failure_that_names_it() {
    let shape = ["--admission", "none", "--slo", "1s", "--clients", "2", "--demand", "200", "--duration", "300ms"];
    for (served, asked, named) in
        [("echo", "const:1us", "synthetic"), ("kv", "const:1us", "synthetic"), ("synthetic", "echo", "echo")]
    {
        let server = Server::start(&["--admission", "none", "--service", served]);
        let (code, out, err) = load_text(&server.address, &[&shape[..], &["--service", asked]].concat());
        assert_eq!(code, Some(1), "{served}: {out}{err}");
        let expected = format!("this load needs `leeward serve --service {named}`");
        assert!(err.contains(&expected) && out.replace('\n', " ").contains(&expected), "{served}: {out}{err}");
    }
}

#[test]
fn every_request_ends_once_while_cores_are_granted_and_revoked() {
    for allocator in
        ["delay:threshold=1us,search=20us", "delay-range", "buffer", "utilization", "per-request", "static"]
    {
        // More cores than CPUs on most test machines.
        let flags = ["--cores", "1..6", "--allocator", allocator, "--admission", "breakwater", "--json"];
        let objective = ["--slo", "100ms", "--rtt", "50us"];
        let server = Server::start(&[&flags[..], &objective].concat());
        let shape = ["--clients", "20", "--demand", "4k", "--duration", "500ms", "--warmup", "100ms"];
        let report = load(&server.address, &[&objective[..], &shape].concat());
        assert_eq!(report["violations"], Value::Array(Vec::new()), "{allocator}: {report}");
        let totals = &report["totals"];
        let count = |name: &str| totals[name].as_u64().unwrap();
        assert!(count("offered") > 0 && count("completed") > 0, "{allocator}: {totals}");
        assert_eq!((count("failed"), count("disconnected")), (0, 0), "{allocator}: {totals}");
        let summary: Value = serde_json::from_str(server.stop().lines().last().unwrap()).unwrap();
        assert_eq!(summary["completed"].as_u64(), totals["completed"].as_u64(), "{allocator}: {summary}");
        let cores = &summary["cores"];
        assert_eq!((&cores["most"], &cores["parked_ns"][0]), (&6.into(), &0.into()), "{allocator}: {cores}");
        let mean = cores["mean"].as_f64().unwrap();
        assert!((1.0..=6.0).contains(&mean), "{allocator}: {cores}");
        assert!(cores["parks"].as_u64() <= cores["grants"].as_u64(), "{allocator}: {cores}");
    }
}

#[test]
fn core_usage_is_printed_in_words() {
    let server = Server::start(&["--cores", "1..2"]);
    let text = server.stop();
    assert!(text.contains("cores: 1.00 of 2 held on average by delay") && text.contains("parked for 0.0, "), "{text}");
}

#[test]
fn more_cores_than_cpus_are_warned_of() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["serve", "--listen", "127.0.0.1:0", "--cores", "128", "--idle", "block"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let few = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 128);
    let mut warning = String::new();
    if few {
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut warning).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!few || warning.starts_with("warning: 128 cores on "), "{warning}");
}

/// Warnings come before the line that the server prints when it is ready.
#[test]
fn unused_flags_give_warnings_and_start_up_steps_are_printed() {
    let warnings = |flags: &[&str]| {
        let (mut child, line) = start_server(flags);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(line.starts_with("serving "), "{line}");
        String::from_utf8(output.stderr).unwrap()
    };
    let memory = warnings(&["--service", "echo", "--memory", "1GB"]);
    assert!(
        memory.contains("warning: --memory belongs to --service kv and router-leaf, and has no effect on echo"),
        "{memory}"
    );
    let cpus = warnings(&["--cores", "2", "--cpus", "0,0"]);
    assert!(cpus.contains("warning: --cpus names CPU 0 2 times"), "{cpus}");
    let steps = warnings(&["--service", "search"]);
    assert!(steps.contains("search: reading documents ...") && steps.contains("search: indexing "), "{steps}");
}

#[test]
fn a_closed_loop_sends_a_request_after_each_response() {
    let server = Server::start(&["--service", "echo", "--admission", "none"]);
    let report = load(
        &server.address,
        &[
            &["--admission", "none", "--service", "echo", "--clients", "4", "--closed", "2"][..],
            &["--duration", "400ms", "--warmup", "100ms"],
        ]
        .concat(),
    );
    assert!(report["totals"]["completed"].as_u64().unwrap() > 8, "{report}");
}

#[test]
fn demand_may_be_a_multiple_of_the_capacity() {
    let objective = ["--admission", "none", "--slo", "100ms", "--rtt", "50us"];
    let server = Server::start(&objective);
    let shape = ["--clients", "8", "--demand", "0.2x", "--service", "const:50us", "--duration", "400ms"];
    let flags = [&objective[..], &shape, &["--warmup", "100ms"]].concat();
    let report = load(&server.address, &flags);
    let number = |value: &Value| value.as_f64().unwrap();
    let (capacity, duration) = (number(&report["capacity_per_s"]), 0.4);
    assert_eq!(number(&report["demand_ratio"]), 0.2);
    assert!(capacity > 0.0 && capacity < 20_000.0, "50 us each: {capacity}");
    let (planned, wanted) = (number(&report["planned"]), 0.2 * capacity * duration);
    assert!((planned - wanted).abs() < 6.0 * wanted.sqrt() + 1.0, "{planned} for {wanted}");
    assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}");
    let output = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["load", &server.address]).args(&flags).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(
        text.starts_with("demand ") && text.contains("0.2 x ") && text.contains("as a closed loop measured"),
        "{text}"
    );
}

/// The capacity is measured with so few active clients that no controller rejects. With all clients
/// active it differed by a factor of three and more between controllers.
#[test]
fn measured_capacity_does_not_depend_on_the_controller() {
    let measured = |controller: &str| {
        // With all clients active a request would wait for twice the objective. A busy machine
        // seldom adds as much.
        let flags = ["--admission", controller, "--slo", "10ms"];
        let server = Server::start(&flags);
        let shape = ["--clients", "400", "--demand", "0.05x", "--service", "const:50us", "--duration", "200ms"];
        load(&server.address, &[&flags[..], &shape].concat())["capacity_per_s"].as_f64().unwrap()
    };
    for controller in ["breakwater", "auto", "edge"] {
        for attempt in 1.. {
            let (plain, controlled) = (measured("none"), measured(controller));
            if (0.7..1.4).contains(&(controlled / plain)) {
                break;
            }
            assert!(attempt < 5, "{controller}: {controlled}, without control {plain}");
        }
    }
}

#[test]
fn unanswered_requests_are_reported() {
    // Half a second each: the last responses arrive only after the load has stopped waiting.
    let objective = ["--admission", "none", "--slo", "100ms", "--rtt", "50us"];
    let server = Server::start(&objective);
    let shape = ["--clients", "4", "--demand", "60", "--service", "const:900ms", "--duration", "300ms"];
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["load", &server.address, "--warmup", "0s"])
        .args([&objective[..], &shape].concat())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("unanswered "), "{printed}");
}

#[test]
fn invalid_flags_are_rejected_before_connecting() {
    // No server listens there; errors in the flags are reported first.
    for flags in [
        ["--demand", "0"],
        ["--demand", "0.0001"],
        ["--demand", "0x"],
        ["--demand", "nanx"],
        ["--demand", "101x"],
        ["--demand", "x"],
        ["--demand", "900M"],
        ["--payload", "7"],
        ["--payload", "99999999"],
        ["--hgrm", "/nonexistent/file"],
        ["--hgrm", "/"],
        ["--cpu", "99999"],
        ["--warmup", "5s"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["load", "127.0.0.1:1"]).args(flags).output();
        let output = output.unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{flags:?}: {words}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_nonexistent_cpu_is_rejected() {
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["serve", "--listen", "127.0.0.1:0", "--cpus", "99999"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{words}");
    assert!(words.contains("99999"), "{words}");
}

#[test]
fn an_unreachable_server_is_reported_in_one_line() {
    for (address, code) in [("127.0.0.1:1", 1), ("nowhere", 2), ("", 2)] {
        let output = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["load", address]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(code), 1), "{address}: {words}");
        assert!(output.stdout.is_empty());
    }
}
