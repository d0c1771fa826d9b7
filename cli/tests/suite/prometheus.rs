//! Prometheus itself, beside a server under overload: it scrapes the admin port, and its goodput is the client's.

use crate::server::leeward;
use leeward_testkit::require::Requirement;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that a busy machine does slowly.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that ends with its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of this program, its address and its admin port's.
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

/// Prometheus's own server, which scrapes `admin`.
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
        // It cannot be told to take any port that is free.
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

    /// An answer, if there is one yet. Of HTTP/1.0, so that its end is the connection's.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).ok()?;
        let mut heard = String::new();
        stream.read_to_string(&mut heard).ok()?;
        let (head, body) = heard.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, body.into()))
    }

    fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let (status, body) = self.get(&format!("/api/v1/{path}?{}", parameters.join("&"))).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["data"].clone()
    }

    /// The one sample of a query at a time, in seconds since 1970; `None` if there is none.
    fn query(&self, query: &str, at: Option<f64>) -> Option<f64> {
        let at = at.map(|at| at.to_string());
        let mut parameters = vec![("query", query)];
        parameters.extend(at.as_deref().map(|at| ("time", at)));
        let told = self.api("query", &parameters);
        let samples = told["result"].as_array().unwrap();
        assert!(samples.len() <= 1, "{query}: {samples:?}");
        Some(samples.first()?["value"][1].as_str()?.parse().unwrap())
    }
}

/// Asks until there is an answer.
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
fn its_goodput_is_what_the_client_counts() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        return Requirement::Promtool.missing("prometheus is not in the path");
    }
    let folder = tempfile::tempdir().unwrap();
    // More than it can do, of which it refuses much. The objective is one that no answer misses, however busy this machine is:
    // both sides count the same answers as goodput then.
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
    // Nothing comes any more, so that two scrapes of one count are of the whole.
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
        let told = prometheus.query(query, Some(at)).unwrap();
        println!("{query}: {told}; the server's count {count}, the client's {good}");
        assert!((told - good).abs() <= good * 0.02, "{query}: {told}, of {good}: {report}");
    }
    // The exemplar of the refusals is one that `leeward why` explains.
    let (start, end) = ((at - 300.0).to_string(), (at + 1.0).to_string());
    let query = "leeward_admission_decisions_total{decision=\"refused\",reason=\"delay\"}";
    let told = prometheus.api("query_exemplars", &[("query", query), ("start", &start), ("end", &end)]);
    let examples = told[0]["exemplars"].as_array().unwrap_or_else(|| panic!("no exemplars: {told}"));
    let id = examples.last().unwrap()["labels"]["decision"].as_str().unwrap();
    let why = leeward(&["why", id, &admin], folder.path());
    let text = String::from_utf8_lossy(&why.stdout);
    assert!(why.status.success() && text.contains(": delay. "), "{text}{}", String::from_utf8_lossy(&why.stderr));
}
