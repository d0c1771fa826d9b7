//! Prometheus itself, with a server under overload: it scrapes the admin port, and its goodput
//! equals the client's.

use crate::server::leeward;
use leeward_testkit::require::Requirement;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for operations that a busy machine does slowly.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that is killed at the end of its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server; returns it, its address and its admin address.
fn serve(flags: &[&str]) -> (KillOnDrop, String, String) {
    let all = [&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--idle", "50us"], flags].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward")).args(all).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut listen = String::new();
    let admin = lines.find_map(|line| {
        if let Some((_, rest)) = line.split_once(" on ").filter(|_| line.starts_with("serving ")) {
            listen = rest.split(' ').next().unwrap().into();
        }
        Some(line.strip_prefix("admin: http://")?.trim_end_matches('/').to_string())
    });
    std::thread::spawn(move || lines.for_each(drop));
    (KillOnDrop(child), listen, admin.expect("the server says where its admin port is"))
}

/// A Prometheus server, which scrapes `admin`.
struct Prometheus {
    address: String,
    _running: KillOnDrop,
}

impl Prometheus {
    fn start(admin: &str, folder: &Path) -> Prometheus {
        let config = format!(
            "global: {{ scrape_interval: 250ms, scrape_timeout: 250ms }}\n\
             scrape_configs:\n  - job_name: leeward\n    static_configs:\n      - targets: [\"{admin}\"]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        // Prometheus cannot choose a free port itself.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=error"])
            .spawn()
            .unwrap();
        let prometheus = Prometheus { address, _running: KillOnDrop(child) };
        wait_for("Prometheus is ready", || prometheus.get("/-/ready").filter(|(status, _)| *status == 200));
        prometheus
    }

    /// Response to a request, if there is one yet. HTTP/1.0, so that the connection's end ends the
    /// response.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).ok()?;
        let mut received = String::new();
        stream.read_to_string(&mut received).ok()?;
        let (head, body) = received.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, body.into()))
    }

    fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let (status, body) = self.get(&format!("/api/v1/{path}?{}", parameters.join("&"))).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["data"].clone()
    }

    /// Value of a query with one sample, at a time in seconds since 1970; `None` without a sample.
    fn query(&self, query: &str, at: Option<f64>) -> Option<f64> {
        let at = at.map(|at| at.to_string());
        let mut parameters = vec![("query", query)];
        parameters.extend(at.as_deref().map(|at| ("time", at)));
        let result = self.api("query", &parameters);
        let samples = result["result"].as_array().unwrap();
        assert!(samples.len() <= 1, "{query}: {samples:?}");
        Some(samples.first()?["value"][1].as_str()?.parse().unwrap())
    }
}

/// Repeats `ask` until it returns a value.
fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn prometheus_goodput_equals_the_clients_count() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("prometheus is not in the path");
    }
    let folder = tempfile::tempdir().unwrap();
    // More load than the server can serve, so it rejects much. No response misses the objective,
    // even on a busy machine: both sides then count the same responses as goodput.
    let (_server, listen, admin) = serve(&["--slo", "30s", "--admission", "throttle", "--set", "threshold=400us"]);
    let prometheus = Prometheus::start(&admin, folder.path());
    const IN_TIME: &str = "sum(leeward_requests_in_time_total)";
    wait_for("a first scrape", || prometheus.query(IN_TIME, None));
    let load = ["load", &listen, "--json", "--admission", "none", "--demand", "20k", "--duration", "4s"];
    let output =
        leeward(&[&load[..], &["--service", "exp:100us", "--slo", "30s", "--clients", "20"]].concat(), folder.path());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let good = report["totals"]["good"].as_f64().unwrap_or_else(|| panic!("no goodput in {report}"));
    // No more requests arrive, so two scrapes with one count cover the whole run.
    const LAST: &str = "max(timestamp(leeward_requests_in_time_total))";
    let count = wait_for("the same count twice", || {
        let (count, at) = (prometheus.query(IN_TIME, None)?, prometheus.query(LAST, None)?);
        (count > 0.0).then_some(())?;
        wait_for("another scrape", || prometheus.query(LAST, None).filter(|later| *later > at));
        prometheus.query(IN_TIME, None).filter(|later| *later == count)
    });
    let at = prometheus.query(LAST, None).unwrap();
    for query in
        ["sum(increase(leeward_requests_in_time_total[5m]))", "sum(rate(leeward_requests_in_time_total[5m])) * 300"]
    {
        let measured = prometheus.query(query, Some(at)).unwrap();
        println!("{query}: {measured}; the server's count {count}, the client's {good}");
        assert!((measured - good).abs() <= good * 0.02, "{query}: {measured}, of {good}: {report}");
    }
    // `leeward why` explains the exemplar of the rejections.
    let (start, end) = ((at - 300.0).to_string(), (at + 1.0).to_string());
    let query = "leeward_admission_decisions_total{decision=\"refused\",reason=\"delay\"}";
    let result = prometheus.api("query_exemplars", &[("query", query), ("start", &start), ("end", &end)]);
    let examples = result[0]["exemplars"].as_array().unwrap_or_else(|| panic!("no exemplars: {result}"));
    let id = examples.last().unwrap()["labels"]["decision"].as_str().unwrap();
    let why = leeward(&["why", id, &admin], folder.path());
    let text = String::from_utf8_lossy(&why.stdout);
    assert!(why.status.success() && text.contains(": delay. "), "{text}{}", String::from_utf8_lossy(&why.stderr));
}
