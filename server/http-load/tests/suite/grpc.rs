//! Unary gRPC calls against a server by hand.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use http::Method;
use leeward_core::units::Nanos;
use leeward_http_load::{HttpLoadConfig, HttpLoadError, HttpVersion};

use crate::support::{Reply, Server, Speaks, Tally, config, open, run, try_run};

fn call(server: &Server) -> HttpLoadConfig {
    HttpLoadConfig {
        version: HttpVersion::Http2,
        is_grpc: true,
        method: Method::POST,
        body: "message".into(),
        ..config(server.address)
    }
}

/// A response with this status in its trailers.
fn reply(status: u32) -> Reply {
    let trailers = Some(vec![("grpc-status", status.to_string())]);
    let reply = Reply { content: vec![0, 0, 0, 0, 1, b'x'], trailers, ..Reply::status(200) };
    reply.header("content-type", "application/grpc")
}

#[test]
fn a_call_is_framed_and_has_its_headers() {
    let tally = Tally::default();
    let seen = tally.clone();
    let server = Server::start(Speaks::Http2 { streams: 100 }, move |head, content| {
        let header = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().unwrap());
        seen.add(&format!("{} {} {} {content:?}", head.method, header("content-type"), header("te")));
        let timeout = header("grpc-timeout").strip_suffix('u').and_then(|digits| digits.parse::<u64>().ok());
        seen.add(if timeout.is_some_and(|us| us <= 10_000_000) { "timeout" } else { "none" });
        reply(0)
    });
    let report = run(&HttpLoadConfig { budget: Some(Nanos::from_secs(10)), ..call(&server) }, &open(500.0, 2));
    assert_eq!((report.totals.completed, report.totals.failed), (report.planned, 0), "{:?}", report.failures);
    let head = format!("POST application/grpc trailers {:?}", [&[0, 0, 0, 0, 7][..], b"message"].concat());
    assert_eq!(tally.get(), [(head, report.planned), ("timeout".to_string(), report.planned)].into());
}

#[test]
fn statuses_in_trailers_and_headers_are_told_apart() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(Speaks::Http2 { streams: 100 }, move |_, _| match turn.fetch_add(1, SeqCst) % 6 {
        0 => reply(0),
        1 => reply(8),
        // A response of trailers alone.
        2 => Reply::status(200).header("grpc-status", "14").header("leeward-reason", "queue"),
        3 => reply(4),
        4 => Reply::status(200),
        _ => Reply::status(503),
    });
    let report = run(&call(&server), &open(1_000.0, 2));
    let names = |counts: &std::collections::BTreeMap<String, u64>| counts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&report.drop_reasons), ["503", "RESOURCE_EXHAUSTED", "queue"]);
    assert_eq!(names(&report.failures), ["DEADLINE_EXCEEDED", "no grpc-status"]);
    assert!(report.totals.completed.abs_diff(report.planned / 6) <= 6);
}

#[test]
fn a_call_needs_http2() {
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    let http1 = HttpLoadConfig { version: HttpVersion::Http1, ..call(&server) };
    assert!(matches!(try_run(&http1, &open(100.0, 1)), Err(HttpLoadError::Config(_))));
}
