//! OTLP exports to receivers of this test: a strict one that checks the mapping, a full one, a
//! silent one, and none.

use leeward_admin::{Admin, Exporter, OtlpEndpoint, Sources};
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::{RejectionCount, StageWaits, TlsCounts};
use leeward_observe::{Decision, DecisionId, Snapshot, Source, WaitCounts};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source that counts one more request at each snapshot.
#[derive(Default)]
struct CountingSource(AtomicU64);

impl Source for CountingSource {
    fn snapshot(&self) -> Snapshot {
        let arrived = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut waits = WaitCounts::default();
        (waits.buckets[3], waits.sum_ns) = (arrived, arrived * 50_000);
        Snapshot {
            mode: "enforce",
            arrived,
            uptime_ns: arrived * 1_000_000,
            unix_ns: leeward_observe::unix_ns(),
            refused: vec![RejectionCount { reason: "delay", class: Some(3), count: 5 }],
            waits: vec![StageWaits { stage: "worker", waits }],
            tls: Some(TlsCounts { done: 3, refused: vec![("stalled".into(), 2)], ..TlsCounts::default() }),
            ..Snapshot::default()
        }
    }

    fn decision(&self, _: DecisionId) -> Option<Decision> {
        None
    }

    fn decisions(&self, _: usize) -> Vec<Decision> {
        Vec::new()
    }

    fn context(&self) -> DecisionContext {
        DecisionContext::default()
    }
}

const EXPORT_INTERVAL: Duration = Duration::from_millis(20);

fn sources() -> Sources {
    let sources = Sources::default();
    sources.insert("rpc", Arc::new(CountingSource::default()));
    sources
}

fn export(listener: &TcpListener, sources: &Sources) -> Exporter {
    let receiver: OtlpEndpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let resource = vec![("service.name", "kv".to_string())];
    Exporter::start(receiver, EXPORT_INTERVAL, sources.clone(), resource).unwrap()
}

/// Accepts a request and returns the connection, the head and the body.
fn request(listener: &TcpListener) -> (TcpStream, String, String) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return (stream, head.into(), body.into());
            }
        }
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the request ends within itself: {text}");
        received.extend_from_slice(&piece[..count]);
    }
}

fn answer(mut stream: TcpStream, response: &str) {
    stream.write_all(response.as_bytes()).unwrap();
}

/// Fields of an object; panics at a field that is not in the definition.
fn fields<'a>(value: &'a Value, known: &[&str]) -> &'a serde_json::Map<String, Value> {
    let map = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    map.keys().for_each(|key| assert!(known.contains(&key.as_str()), "`{key}` is no field: {value}"));
    map
}

/// Parses a 64-bit integer, which the mapping writes as a string.
fn parse_u64(value: &Value) -> u64 {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}")).parse().unwrap()
}

fn attributes(value: &Value) -> Vec<(String, String)> {
    let pair = |attribute: &Value| {
        let of = fields(attribute, &["key", "value"]);
        let value = fields(&of["value"], &["stringValue"]);
        (of["key"].as_str().unwrap().to_string(), value["stringValue"].as_str().unwrap().to_string())
    };
    value.as_array().unwrap().iter().map(pair).collect()
}

/// Checks that a histogram's counts match its bounds, which increase.
fn check_histogram(point: &serde_json::Map<String, Value>) {
    let counts: Vec<u64> = point["bucketCounts"].as_array().unwrap().iter().map(parse_u64).collect();
    let bounds: Vec<f64> = point["explicitBounds"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    assert_eq!(counts.len(), bounds.len() + 1);
    assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
    assert_eq!(counts.iter().sum::<u64>(), parse_u64(&point["count"]));
    assert!(point["sum"].is_number());
}

/// Parses a request strictly by the definition of `ExportMetricsServiceRequest`
/// (opentelemetry-proto 1.x, metrics.proto). Returns the metrics' names with the sums of their
/// points.
fn parse_strict(body: &str) -> Vec<(String, f64)> {
    let request: Value = serde_json::from_str(body).unwrap();
    let resources = fields(&request, &["resourceMetrics"])["resourceMetrics"].as_array().unwrap();
    assert_eq!(resources.len(), 1);
    let resource = fields(&resources[0], &["resource", "scopeMetrics", "schemaUrl"]);
    let named = attributes(&fields(&resource["resource"], &["attributes"])["attributes"]);
    assert_eq!(named, [("service.name".to_string(), "kv".to_string())]);
    let scope = fields(&resource["scopeMetrics"][0], &["scope", "metrics", "schemaUrl"]);
    assert_eq!(fields(&scope["scope"], &["name", "version"])["name"], "leeward");
    let mut found = Vec::new();
    for metric in scope["metrics"].as_array().unwrap() {
        let of = fields(metric, &["name", "description", "unit", "gauge", "sum", "histogram"]);
        let kinds: Vec<&str> =
            ["gauge", "sum", "histogram"].into_iter().filter(|kind| of.contains_key(*kind)).collect();
        let [kind] = kinds[..] else { panic!("kinds {kinds:?} of {metric}") };
        let data = fields(&of[kind], &["dataPoints", "aggregationTemporality", "isMonotonic"]);
        assert_eq!(data.get("aggregationTemporality").and_then(Value::as_u64), (kind != "gauge").then_some(2));
        assert_eq!(data.get("isMonotonic").and_then(Value::as_bool), (kind == "sum").then_some(true));
        let mut sum = 0.0;
        for point in data["dataPoints"].as_array().unwrap() {
            let number = ["attributes", "startTimeUnixNano", "timeUnixNano", "asInt", "asDouble"];
            let histogram =
                ["attributes", "startTimeUnixNano", "timeUnixNano", "count", "sum", "bucketCounts", "explicitBounds"];
            let point = fields(point, if kind == "histogram" { &histogram } else { &number });
            attributes(&point["attributes"]);
            if kind != "gauge" {
                assert!(parse_u64(&point["startTimeUnixNano"]) <= parse_u64(&point["timeUnixNano"]), "{metric}");
            }
            match kind {
                "histogram" => check_histogram(point),
                _ => assert!(point.contains_key("asInt") != point.contains_key("asDouble"), "{metric}"),
            }
            sum += point.get("asInt").map_or(0.0, |count| parse_u64(count) as f64);
            sum += point.get("asDouble").and_then(Value::as_f64).unwrap_or(0.0);
        }
        found.push((of["name"].as_str().unwrap().to_string(), sum));
    }
    found
}

fn value(of: &[(String, f64)], name: &str) -> f64 {
    of.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name} in {of:?}")).1
}

#[test]
fn a_strict_receiver_takes_every_export() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sources = sources();
    let exporter = export(&listener, &sources);
    let mut before = 0.0;
    for turn in 0..3 {
        let (stream, head, body) = request(&listener);
        assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
        let sums = parse_strict(&body);
        let arrived = value(&sums, "leeward.requests.arrived");
        assert!(arrived > before, "counts are cumulative");
        before = arrived;
        assert_eq!(value(&sums, "leeward.otlp.exports"), f64::from(turn), "each export before this one");
        assert_eq!(value(&sums, "leeward.tls.refusals"), 2.0);
        answer(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    }
    assert_eq!(exporter.take_messages(), Vec::<String>::new());
    // The last export contains the counts since the previous one.
    let last = std::thread::spawn(move || {
        let (stream, _, body) = request(&listener);
        answer(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        parse_strict(&body)
    });
    drop(exporter);
    assert!(value(&last.join().unwrap(), "leeward.requests.arrived") > before);
}

/// Waits for a message with this text.
fn wait_for_message(exporter: &Exporter, text: &str) -> String {
    for _ in 0..2_000 {
        if let Some(message) = exporter.take_messages().into_iter().find(|message| message.contains(text)) {
            return message;
        }
        // Give the exporter's thread time for its next export.
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody says `{text}`");
}

fn metrics(admin: &Admin) -> String {
    let mut stream = TcpStream::connect(admin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", admin.address()).unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    received
}

fn count(metrics: &str, result: &str) -> u64 {
    let sample = format!("leeward_otlp_exports_total{{result=\"{result}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&sample)).unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn failed_exports_are_counted_and_reported_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sources = sources();
    let admin = Admin::start("127.0.0.1:0", sources.clone(), String::new()).unwrap();
    assert!(!metrics(&admin).contains("leeward_otlp_exports"), "nobody exports");
    let exporter = export(&listener, &sources);
    for _ in 0..3 {
        let (stream, _, _) = request(&listener);
        answer(stream, "HTTP/1.1 503 Busy\r\ncontent-length: 19\r\n\r\n{\"message\":\"full\"}\n");
    }
    let (stream, _, _) = request(&listener);
    let messages = exporter.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("answers 503: full"), "{messages:?}");
    answer(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    wait_for_message(&exporter, "accepted again");
    // The next response is not HTTP.
    let (stream, _, _) = request(&listener);
    answer(stream, "220 mail.example\r\n");
    wait_for_message(&exporter, "does not speak HTTP");
    let (stream, _, _) = request(&listener);
    answer(
        stream,
        "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"2\",\"errorMessage\":\"old\"}}",
    );
    wait_for_message(&exporter, "2 of the points were rejected: old");
    drop(listener);
    wait_for_message(&exporter, "can't be reached");
    let text = metrics(&admin);
    assert_eq!((count(&text, "refused"), count(&text, "accepted"), count(&text, "unanswered")), (3, 2, 1), "{text}");
    assert!(count(&text, "unreachable") >= 1 && text.contains("leeward_otlp_rejected_points_total 2\n"), "{text}");
}

#[test]
fn a_silent_receiver_blocks_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sources = sources();
    let admin = Admin::start("127.0.0.1:0", sources.clone(), String::new()).unwrap();
    let exporter = export(&listener, &sources);
    // The receiver accepts and never responds: the admin port still responds, and the exporter
    // makes its next export.
    let (_silent, _, _) = request(&listener);
    assert!(metrics(&admin).contains("leeward_requests_arrived_total"));
    wait_for_message(&exporter, "timed out");
    let (_silent_too, _, _) = request(&listener);
    drop(exporter);
}
