//! HTTP/1.1: keep-alive, connections that are opened again, waits for a connection, the end of a
//! run.

use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use leeward_core::units::Nanos;
use leeward_http_load::{HttpLoadConfig, HttpLoadError};
use leeward_load::report::RunEndReason;

use crate::support::{
    InFlight, Reply, Server, Speaks, Tally, closed, config, open, raw_server, read_request, run, run_until, try_run,
};

#[test]
fn each_request_is_answered_once() {
    let tally = Tally::default();
    let seen = tally.clone();
    let server = Server::start(Speaks::Http1, move |head, content| {
        assert_eq!((content, head.headers["x-a"].as_bytes()), (&b"question"[..], &b"b"[..]));
        seen.add(&format!("{} {}", head.method, head.headers["host"].to_str().unwrap()));
        Reply { content: b"answer".to_vec(), ..Reply::status(200) }
    });
    let headers = [(HeaderName::from_static("x-a"), HeaderValue::from_static("b"))].into_iter().collect();
    let config = HttpLoadConfig { method: Method::PUT, body: "question".into(), headers, ..config(server.address) };
    let report = run(&config, &open(2_000.0, 20));
    assert_eq!((report.ending, report.totals.completed), (RunEndReason::Finished, report.planned));
    assert_eq!(tally.get(), [(format!("PUT {}", server.address), report.planned)].into());
    assert_eq!(report.content_bytes, 6 * report.planned);
    assert_eq!((report.connections.opened, report.connections.lost, report.connections.reopened), (20, 0, 0));
}

#[test]
fn a_server_that_closes_after_each_response_is_loaded_all_the_same() {
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200).header("connection", "close"));
    let report = run(&config(server.address), &open(1_000.0, 10));
    assert_eq!((report.totals.completed, report.connections.lost), (report.planned, 0));
    assert!(report.connections.reopened >= report.planned - 10, "{:?}", report.connections);
}

#[test]
fn a_connection_that_is_closed_silently_loses_at_most_its_request() {
    // Without `connection: close` a request can already be on its way.
    let address = raw_server(|mut stream| {
        for _ in 0..5 {
            if !read_request(&mut stream) || stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let report = run(&config(address), &open(1_000.0, 4));
    assert_eq!(report.totals.completed + report.totals.failed, report.planned, "{:?}", report.totals);
    assert!(report.totals.completed > report.totals.failed, "{:?}", report.failures);
    assert!(report.connections.reopened > 0);
}

#[test]
fn a_wait_for_a_free_connection_is_part_of_the_latency() {
    // Twice the load that one connection can carry.
    let delay = Duration::from_millis(5);
    let server = Server::start(Speaks::Http1, move |_, _| Reply { delay, ..Reply::status(200) });
    let report = run(&config(server.address), &open(400.0, 1));
    assert_eq!(report.totals.completed, report.planned);
    assert!(report.latency.p99.0 > 3 * report.latency_from_send.p50.0, "{:?}", report.latency);
    // An objective beyond the whole wait, and one within it.
    let waited = |slo| run(&HttpLoadConfig { slo, ..config(server.address) }, &open(400.0, 1)).connections.waited_for;
    assert_eq!(waited(Nanos::from_secs(60)), 0);
    let late = waited(Nanos::from_millis(10));
    assert!(late > report.planned / 2, "{late} of {}", report.planned);
}

#[test]
fn a_request_that_waits_too_long_expires_unsent() {
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    let server = Server::start(Speaks::Http1, move |_, _| {
        count.fetch_add(1, SeqCst);
        Reply { delay: Duration::from_millis(20), ..Reply::status(200) }
    });
    let budget = Some(Nanos::from_millis(30));
    let report = run(&HttpLoadConfig { budget, ..config(server.address) }, &open(500.0, 1));
    let totals = report.totals;
    assert_eq!(totals.completed + totals.expired, report.planned, "{totals:?}");
    assert_eq!(report.connections.waited_for, totals.expired, "each waited for a connection");
    assert!(totals.expired > totals.completed && totals.completed == received.load(SeqCst), "{totals:?}");
}

#[test]
fn a_request_in_flight_is_given_up_at_its_time_out() {
    let hangs = AtomicU64::new(0);
    let server = Server::start(Speaks::Http1, move |_, _| {
        let is_hanging = hangs.fetch_add(1, SeqCst).is_multiple_of(10);
        Reply { delay: Duration::from_secs(if is_hanging { 60 } else { 0 }), ..Reply::status(200) }
    });
    let timeout = Some(Nanos::from_millis(300));
    let report = run(&HttpLoadConfig { timeout, ..config(server.address) }, &open(200.0, 50));
    assert_eq!(report.ending, RunEndReason::Finished);
    assert!(report.totals.timed_out > 0 && report.totals.completed > 0, "{:?}", report.totals);
    // A late response must not be taken for that of the next request.
    assert!(report.connections.reopened > 0);
    assert!(report.latency.max >= Nanos::from_millis(300), "what was given up has a latency, too");
}

#[test]
fn the_number_of_connections_need_not_be_the_schedules() {
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    let report = run(&HttpLoadConfig { connections: Some(7), ..config(server.address) }, &open(500.0, 1));
    assert_eq!((report.totals.completed, report.connections.opened), (report.planned, 7));
}

#[test]
fn a_closed_loop_keeps_each_connection_busy() {
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    let report = run(&config(server.address), &closed(8, 1));
    assert!(report.totals.completed > 8 && report.totals.failed == 0, "{:?}", report.totals);
    assert_eq!((report.planned, report.connections.opened), (0, 8));
    let refused = try_run(&config(server.address), &closed(8, 2));
    assert!(matches!(refused, Err(HttpLoadError::Config(_))), "one request per connection");
}

#[test]
fn a_stop_waits_for_the_requests_in_flight() {
    let (begun, wait) = mpsc::channel();
    let server = Server::start(Speaks::Http1, move |_, _| {
        let _ = begun.send(());
        Reply { delay: Duration::from_millis(100), ..Reply::status(200) }
    });
    let report = run_until(&config(server.address), &open(100.0, 5), || wait.recv().unwrap());
    assert_eq!((report.ending, report.totals.unfinished), (RunEndReason::Stopped, 0));
    assert!(report.totals.completed > 0 && report.totals.offered < report.planned, "{:?}", report.totals);
}

#[test]
fn a_server_that_has_gone_ends_the_run() {
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    let config = config(server.address);
    let workload_end = leeward_load::Plan::Closed {
        connections: 4,
        outstanding: 1,
        service: leeward_workload::ServiceTime::Constant(Nanos::ZERO),
        seed: 1,
        duration: Nanos::from_secs(600),
    };
    let run = std::thread::spawn(move || run(&config, &workload_end));
    std::thread::sleep(Duration::from_millis(200));
    drop(server);
    let report = run.join().unwrap();
    assert_eq!(report.ending, RunEndReason::Disconnected);
    assert!(report.connections.lost > 0 && !report.connections.reasons.is_empty());
}

#[test]
fn a_multiple_of_the_capacity_is_offered() {
    let server = Server::start(Speaks::Http1, |_, _| Reply { delay: Duration::from_millis(2), ..Reply::status(200) });
    let mut demanded = 0.0;
    let open = |capacity: leeward_core::units::Rate| {
        demanded = capacity.0 / 2.0;
        let leeward_load::Plan::Open(schedule) = open(demanded, 2) else { unreachable!() };
        Ok(schedule)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scaled = leeward_http_load::run_scaled(&config(server.address), &closed(2, 1), open, &stop, |_| {}).unwrap();
    assert!(scaled.measured.throughput_per_s > 0.0 && demanded > 0.0);
    assert_eq!(scaled.results.report.totals.completed, scaled.results.report.planned);
}

#[test]
fn a_service_that_rejects_is_measured_with_fewer_connections() {
    // Admits a request that is alone, and takes long for rejections.
    let count = Arc::default();
    let server = Server::start(Speaks::Http1, move |_, _| {
        let (in_flight, now) = InFlight::begin(&count);
        let (status, ms) = if now == 1 { (200, 2) } else { (503, 50) };
        Reply { delay: Duration::from_millis(ms), in_flight: Some(in_flight), ..Reply::status(status) }
    });
    let open = |_| {
        let leeward_load::Plan::Open(schedule) = open(100.0, 1) else { unreachable!() };
        Ok(schedule)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scaled = leeward_http_load::run_scaled(&config(server.address), &closed(16, 1), open, &stop, |_| {}).unwrap();
    let measured = scaled.measured;
    assert_eq!((measured.connections.opened, measured.totals.dropped), (1, 0));
    assert!(measured.throughput_per_s > 0.0);
}
