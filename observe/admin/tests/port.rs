//! The admin port over real sockets: every path, and requests of browsers, scrapers and attackers.

#[path = "../../../server/http1/tests/suite/requests.rs"]
mod requests;

use leeward_admin::{Admin, Sources};
use leeward_core::units::{Nanos, Time};
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::{Leaf, RejectionCount, Tier};
use leeward_observe::{Decision, DecisionId, DecisionReason, DecisionRing, Snapshot, Source};
use leeward_testkit::greetings::GREETINGS;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A source with constant counters; a test may set the standing delay.
struct FixedSource {
    ring: DecisionRing,
    standing_ns: AtomicU64,
    /// Connections to the only leaf; `u64::MAX`: no tier.
    leaf_connections: AtomicU64,
    is_stopping: AtomicBool,
}

impl FixedSource {
    fn new() -> Arc<FixedSource> {
        let ring = DecisionRing::new(256);
        for number in 1..=5_u64 {
            let reason = if number == 3 { DecisionReason::Lock } else { DecisionReason::Delay };
            let mut decision = Decision::rejected(Time(number * 1_000_000), reason);
            decision.delay = Nanos::from_micros(number);
            ring.write(&decision);
        }
        ring.write(&Decision::admitted(Time(6_000_000)));
        Arc::new(FixedSource {
            ring,
            standing_ns: AtomicU64::new(0),
            leaf_connections: AtomicU64::new(u64::MAX),
            is_stopping: AtomicBool::new(false),
        })
    }
}

impl Source for FixedSource {
    fn snapshot(&self) -> Snapshot {
        let connections = self.leaf_connections.load(Ordering::Relaxed);
        let leaf = Leaf { address: "10.0.0.1:1".into(), connections, ..Leaf::default() };
        let tier = Tier { leaves: vec![leaf], partial: 3, ..Tier::default() };
        Snapshot {
            is_stopping: self.is_stopping.load(Ordering::Relaxed),
            tier: (connections < u64::MAX).then_some(tier),
            mode: "enforce",
            arrived: 9,
            admitted: 4,
            refused: vec![RejectionCount { reason: "delay", class: None, count: 5 }],
            standing_ns: self.standing_ns.load(Ordering::Relaxed),
            target_ns: Some(80_000),
            ..Snapshot::default()
        }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.ring.read(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.ring.newest(count)
    }

    fn context(&self) -> DecisionContext {
        DecisionContext {
            controller: "breakwater".into(),
            now: Time(7_000_000),
            unix_ns: 7_000_000,
            ..DecisionContext::default()
        }
    }
}

fn port() -> (Admin, Arc<FixedSource>) {
    let source = FixedSource::new();
    let sources = Sources::default();
    sources.insert("rpc", source.clone());
    (Admin::start("127.0.0.1:0", sources, "slo = \"1ms\"\n".into()).unwrap(), source)
}

fn connect(admin: &Admin) -> TcpStream {
    let stream = TcpStream::connect(admin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends these bytes, and returns all that the port sends.
fn exchange(admin: &Admin, bytes: &[u8]) -> String {
    let mut stream = connect(admin);
    // The port may respond and close before everything is written.
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    String::from_utf8(received).unwrap()
}

fn get(admin: &Admin, path: &str) -> (u16, String) {
    let received = exchange(admin, format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", admin.address()).as_bytes());
    let (head, body) = received.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in: {received}"));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), body.len());
    (head[9..12].parse().unwrap(), body.into())
}

#[test]
fn every_path_answers() {
    let (admin, source) = port();
    assert_eq!(get(&admin, "/healthz"), (200, "alive\n".into()));
    assert_eq!(get(&admin, "/readyz"), (200, "ready\n".into()));
    assert_eq!(get(&admin, "/debug/config"), (200, "slo = \"1ms\"\n".into()));
    let (status, metrics) = get(&admin, "/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("leeward_requests_arrived_total{port=\"rpc\"} 9\n"), "{metrics}");
    let (status, page) = get(&admin, "/");
    assert!(status == 200 && page.starts_with("<!doctype html>"));
    assert_eq!(get(&admin, "/debug/locks").1, "{\"locks\":[]}\n");

    let list = |query: &str| -> Vec<serde_json::Value> {
        let (status, body) = get(&admin, &format!("/debug/decisions{query}"));
        assert_eq!(status, 200, "{body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        body["decisions"].as_array().unwrap().clone()
    };
    assert_eq!(list("").len(), 6);
    assert_eq!(list("?n=2").iter().map(|decision| decision["id"].clone()).collect::<Vec<_>>(), ["6", "5"]);
    assert_eq!(list("?reason=lock")[0]["id"], "3");
    assert_eq!((list("?port=memcached").len(), list("?tenant=7").len()), (0, 0));
    for wrong in ["?n=x", "?n=-1", "?reason=delays", "?tenant=x"] {
        assert_eq!(get(&admin, &format!("/debug/decisions{wrong}")).0, 400, "{wrong}");
    }
    let (status, why) = get(&admin, "/debug/why?id=3");
    assert!(status == 200 && why.contains("Rejected at 00:00:00.003 UTC: lock."), "{why}");
    assert_eq!(get(&admin, "/debug/why?id=77").0, 404);
    for wrong in ["", "?id=", "?id=xyz", "?id=0", "?id=../../etc"] {
        assert_eq!(get(&admin, &format!("/debug/why{wrong}")).0, 400, "{wrong}");
    }
    // Overload does not fail readiness, unless the request asks for it.
    source.standing_ns.store(90_000, Ordering::Relaxed);
    assert_eq!((get(&admin, "/readyz").0, get(&admin, "/readyz?overload=1").0), (200, 503));
    admin.begin_stopping();
    assert_eq!((get(&admin, "/readyz").0, get(&admin, "/healthz").0), (503, 200));
}

#[test]
fn metrics_have_the_format_of_the_accept_header() {
    let (admin, _) = port();
    let text = exchange(&admin, b"GET /metrics HTTP/1.0\r\naccept: application/openmetrics-text\r\n\r\n");
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0") && text.ends_with("# EOF\n"));
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let (admin, source) = port();
    assert_eq!(get(&admin, "/readyz").0, 200);
    source.is_stopping.store(true, Ordering::Relaxed);
    assert_eq!(get(&admin, "/readyz"), (503, "stopping\n".into()));
}

#[test]
fn a_tier_without_any_leaf_is_not_ready() {
    let (admin, source) = port();
    assert!(!get(&admin, "/metrics").1.contains("leeward_leaf"), "it is no tier");
    for (connections, status) in [(0, 503), (2, 200)] {
        source.leaf_connections.store(connections, Ordering::Relaxed);
        assert_eq!(get(&admin, "/readyz").0, status);
        let metrics = get(&admin, "/metrics").1;
        let leaf = format!("leeward_leaf_connections{{port=\"rpc\",leaf=\"10.0.0.1:1\"}} {connections}\n");
        assert!(metrics.contains(&leaf), "{metrics}");
        assert!(metrics.contains("leeward_requests_partial_total{port=\"rpc\"} 3\n"), "{metrics}");
    }
}

/// Clients of other protocols get an HTTP response, and the connection ends.
#[test]
fn clients_of_other_protocols_are_refused() {
    let (admin, _) = port();
    for (name, bytes) in GREETINGS {
        let received = exchange(&admin, bytes);
        let codes: Vec<&str> = received.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
        let is_refused = matches!(codes[..], ["400" | "405" | "404" | "413" | "421" | "505"]);
        assert!(is_refused && !received.contains("STORED"), "{name}: {codes:?}");
    }
    assert_eq!(get(&admin, "/healthz").0, 200);
}

#[test]
fn other_paths_and_methods_are_rejected() {
    let (admin, _) = port();
    for path in ["/../../etc/passwd", "/%2e%2e/etc/passwd", "/debug/", "//", "/metrics/", "/.", "/debug/why/../config"]
    {
        assert_eq!(get(&admin, path).0, 404, "{path}");
    }
    let status = |request: &str| exchange(&admin, request.as_bytes()).get(9..12).map(String::from);
    assert_eq!(
        status("POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\n\r\nabc").as_deref(),
        Some("405")
    );
    assert_eq!(status("GET /healthz HTTP/1.1\r\nhost: evil.example\r\n\r\n").as_deref(), Some("421"));
    assert_eq!(status("\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n").as_deref(), Some("400"));
}

/// Each request stream is followed by one more request, which this port never answers, since it
/// closes each connection.
#[test]
fn requests_are_framed_as_http_requires() {
    let (admin, _) = port();
    for (bytes, statuses, _) in requests::rows() {
        let last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let received = exchange(&admin, &[&bytes[..], last].concat());
        let found: Vec<u16> = received.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect();
        assert_eq!(found, statuses[..1], "{:?}\n{received}", String::from_utf8_lossy(&bytes));
        assert!(received.contains("\r\nconnection: close\r\n"), "{received}");
        // A `HEAD` response has no content.
        assert!(found != [405] || received.ends_with("\r\ncontent-length: 0\r\n\r\n"), "{received}");
    }
}

#[test]
fn a_head_of_a_megabyte_gets_status_431() {
    let (admin, _) = port();
    let head = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    assert!(exchange(&admin, head.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert_eq!(get(&admin, "/healthz").0, 200);
}

/// Subscribes to the events, and reads the response's head.
fn subscribe(admin: &Admin) -> BufReader<TcpStream> {
    let mut stream = connect(admin);
    stream.write_all(format!("GET /events HTTP/1.1\r\nhost: {}\r\n\r\n", admin.address()).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    reader
}

/// Next event that is not the history.
fn event(reader: &mut impl BufRead) -> serde_json::Value {
    let mut is_past = false;
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream has ended");
        is_past |= line.starts_with("event: past");
        if let Some(data) = line.strip_prefix("data: ")
            && !std::mem::take(&mut is_past)
        {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[test]
fn at_most_four_subscribers_receive_states() {
    let (admin, _) = port();
    let mut listeners: Vec<_> = (0..4).map(|_| subscribe(&admin)).collect();
    for listener in &mut listeners {
        let state = event(listener);
        assert_eq!((state["servers"][0]["arrived"].as_u64(), state["stopping"].as_bool()), (Some(9), Some(false)));
        assert_eq!(state["servers"][0]["refusals"].as_array().unwrap().len(), 5);
        let kinds = state["servers"][0]["refusal_kinds"].as_array().unwrap();
        let kinds: Vec<_> = kinds.iter().map(|kind| [&kind["id"], &kind["reason"], &kind["count"]]).collect();
        assert_eq!(serde_json::json!(kinds), serde_json::json!([["5", "delay", 4], ["3", "lock", 1]]));
    }
    assert!(exchange(&admin, b"GET /events HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 "));
    admin.begin_stopping();
    while event(&mut listeners[0])["stopping"] != true {}
    drop(listeners.pop());
    // A slot is free once the port has seen the connection's end.
    let mut status_line = String::new();
    while !status_line.starts_with("HTTP/1.1 200") {
        let mut stream = connect(&admin);
        stream.write_all(b"GET /events HTTP/1.0\r\n\r\n").unwrap();
        status_line = String::new();
        BufReader::new(stream).read_line(&mut status_line).unwrap();
    }
}

#[test]
fn events_name_the_backends_that_are_down() {
    let (admin, _) = port();
    let metrics = "# TYPE leeward_proxy_backend_up gauge\nleeward_proxy_backend_up{backend=\"10.0.0.1:80\"} 1\n\
                   leeward_proxy_backend_up{backend=\"unix:/run/app.sock\"} 0\n\
                   leeward_proxy_backend_limit{backend=\"10.0.0.1:80\"} 0\n";
    admin.sources().append_metrics(Box::new(|| metrics.into()));
    assert_eq!(event(&mut subscribe(&admin))["backends_down"], serde_json::json!(["unix:/run/app.sock"]));
}

#[test]
fn silent_connections_are_closed_for_active_ones() {
    let (admin, _) = port();
    let silent: Vec<TcpStream> = (0..1_000).filter_map(|_| TcpStream::connect(admin.address()).ok()).collect();
    assert!(silent.len() > 500, "{} connections", silent.len());
    for _ in 0..50 {
        assert_eq!(get(&admin, "/healthz").0, 200);
    }
    // Half a head counts as a silent connection.
    for mut stream in &silent {
        let _ = stream.write_all(b"GET /metrics HTT");
    }
    assert_eq!(get(&admin, "/metrics").0, 200);
}

/// A source with large snapshots, which soon fill the buffers of a socket that nobody reads.
struct VerboseSource(Arc<FixedSource>);

impl Source for VerboseSource {
    fn snapshot(&self) -> Snapshot {
        Snapshot { service: "x".repeat(900_000), ..self.0.snapshot() }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.0.decision(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.0.decisions(count)
    }

    fn context(&self) -> DecisionContext {
        self.0.context()
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let (admin, source) = port();
    admin.sources().insert("rpc", Arc::new(VerboseSource(source)));
    let slow: Vec<_> = (0..3).map(|_| subscribe(&admin)).collect();
    let mut listener = subscribe(&admin);
    let is_full = || exchange_head(&admin, b"GET /events HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 ");
    assert!(is_full());
    // Slots become free as the slow subscribers are disconnected; the subscriber that reads gets
    // every state meanwhile.
    let mut count = 0;
    while is_full() {
        event(&mut listener);
        assert_eq!(get(&admin, "/healthz").0, 200);
        count += 1;
        assert!(count < 60, "the deaf keep their places");
    }
    drop(slow);
}

/// Sends these bytes, and returns the first line of the response.
fn exchange_head(admin: &Admin, bytes: &[u8]) -> String {
    let mut stream = connect(admin);
    stream.write_all(bytes).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_stopped_port_frees_its_address() {
    let (admin, _) = port();
    let address = admin.address();
    let mut listener = subscribe(&admin);
    admin.stop();
    let mut rest = String::new();
    listener.read_to_string(&mut rest).unwrap();
    let again = Admin::start(&address.to_string(), Sources::default(), String::new()).unwrap();
    assert_eq!(get(&again, "/healthz").0, 200);
    assert!(Admin::start(&address.to_string(), Sources::default(), String::new()).is_err(), "the address is taken");
}
