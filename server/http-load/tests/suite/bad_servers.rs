//! Servers that are broken, hostile, or speak another protocol: failures, and neither a panic nor a
//! hang.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use leeward_core::units::Nanos;
use leeward_http_load::{HttpLoadConfig, HttpLoadError, HttpVersion, Target};
use leeward_load::LoadReport;

use crate::support::{Reply, Server, Speaks, answering, config, open, raw_server, read_request, run, try_run};

fn load(address: SocketAddr) -> LoadReport {
    let timeout = Some(Nanos::from_millis(200));
    run(&HttpLoadConfig { timeout, ..config(address) }, &open(200.0, 5))
}

/// The codes with which all requests failed that were sent.
fn codes(address: SocketAddr) -> Vec<String> {
    let report = load(address);
    assert_eq!(report.totals.completed + report.totals.dropped, 0, "{:?}", report.totals);
    assert!(report.totals.failed > 0 && report.connections.lost > 0, "{report:?}");
    report.failures.into_keys().collect()
}

#[test]
fn garbage_is_a_failure_of_the_protocol() {
    assert_eq!(codes(answering("\x00\x01\x02garbage\r\n\r\n")), ["protocol"]);
    assert_eq!(codes(answering("220 mail ESMTP\r\n")), ["protocol"]);
    assert_eq!(codes(answering("HTTP/1.1 20 OK\r\n\r\n")), ["protocol"]);
    assert_eq!(codes(answering("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n")), ["protocol"]);
}

#[test]
fn a_banner_before_the_first_request_is_no_response() {
    let address = raw_server(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-x\r\n");
        while read_request(&mut stream) {}
    });
    let report = load(address);
    assert_eq!(report.totals.completed, 0);
    assert!(report.connections.lost > 0, "{:?}", report.connections);
}

#[test]
fn a_connection_that_ends_within_a_response_is_a_failure() {
    for part in ["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "HTTP/1.1 200", ""] {
        let address = raw_server(move |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(part.as_bytes());
        });
        assert_eq!(codes(address), ["closed"], "{part:?}");
    }
    // Unread bytes turn the close into a reset.
    let address = raw_server(|stream| {
        let _ = stream.peek(&mut [0; 8]);
    });
    assert_eq!(codes(address), ["reset"]);
}

#[test]
fn a_server_that_closes_at_once_is_asked_at_a_bounded_rate() {
    let (count, counted) = mpsc::channel();
    let address = raw_server(move |stream| {
        let _ = count.send(());
        drop(stream);
    });
    let report = load(address);
    assert_eq!(report.totals.completed, 0);
    assert!(report.connections.lost > 0 && !report.connections.reasons.is_empty());
    let attempts = counted.try_iter().count() as u64;
    // 5 connections, with delays of 10, 20, 40 … ms: at most eight attempts each within a second
    // and a half.
    assert!(attempts <= 5 * 20, "{attempts}");
}

#[test]
fn a_silent_server_times_out() {
    let address = raw_server(|mut stream| while read_request(&mut stream) {});
    let report = load(address);
    let totals = report.totals;
    assert_eq!(totals.timed_out + totals.expired, report.planned, "{totals:?}");
    assert!(totals.timed_out >= 5 && report.connections.reopened > 0);
    // Without a time-out they are unfinished.
    let drain = Nanos::from_millis(50);
    let report = run(&HttpLoadConfig { timeout: None, drain, ..config(address) }, &open(200.0, 5));
    assert_eq!(report.totals.unfinished, report.planned);
}

#[test]
fn every_framing_of_a_response_is_read() {
    let check = |response: &str, bytes: u64| {
        let report = load(answering(response));
        assert_eq!(report.totals.completed, report.planned, "{response:?}: {:?}", report.failures);
        assert_eq!(report.content_bytes, bytes * report.planned, "{response:?}");
        assert_eq!((report.connections.lost, report.connections.reopened), (0, 0), "{response:?}");
    };
    check("HTTP/1.1 204 No Content\r\n\r\n", 0);
    check("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 0);
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 2);
    check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 5);
    check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: t\r\n\r\n1\r\nx\r\n0\r\nt: v\r\n\r\n", 1);
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
        1,
    );
    let big = format!("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n{}", "x".repeat(300_000));
    check(&big, 300_000);
    let heads = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: {}\r\n\r\n", "y".repeat(60_000));
    check(&heads, 0);
}

#[test]
fn content_until_the_end_of_the_connection_is_a_response() {
    let address = raw_server(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it");
    });
    let report = load(address);
    assert_eq!((report.totals.completed, report.content_bytes), (report.planned, 9 * report.planned));
    assert!(report.connections.reopened > 0 && report.connections.lost == 0, "{:?}", report.connections);
}

#[test]
fn an_endless_head_is_a_failure() {
    let address = raw_server(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").is_ok() {}
    });
    let codes = codes(address);
    assert!(codes.iter().all(|code| ["head too large", "protocol"].contains(&code.as_str())), "{codes:?}");
}

#[test]
fn errors_before_the_first_request_end_the_run() {
    let vacant = leeward_testkit::net::vacant_address();
    let refused = try_run(&config(vacant), &open(100.0, 5)).unwrap_err();
    assert!(matches!(refused, HttpLoadError::Connect { of: 5, .. }) && refused.to_string().contains("refused"));
    let nowhere = vec![Target::parse("http://host.invalid/").unwrap()];
    let unknown = try_run(&HttpLoadConfig { targets: nowhere, ..config(vacant) }, &open(100.0, 5)).unwrap_err();
    assert!(matches!(unknown, HttpLoadError::Resolve { .. }), "{unknown}");
}

#[test]
fn a_server_without_http2_is_noticed_before_the_first_request() {
    let http2 = |address| HttpLoadConfig {
        version: HttpVersion::Http2,
        connect_timeout: Nanos::from_millis(300),
        ..config(address)
    };
    let server = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    let silent = raw_server(|stream| {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut stream = stream;
        while read_request(&mut stream) {}
        std::thread::sleep(Duration::from_secs(2));
    });
    for address in [server.address, answering("garbage garbage garbage\r\n\r\n"), silent] {
        let error = try_run(&http2(address), &open(100.0, 3)).unwrap_err();
        assert!(matches!(error, HttpLoadError::Connect { .. }), "{error}");
        assert!(error.to_string().contains("HTTP/2"), "{error}");
    }
}

#[test]
fn a_server_of_http2_alone_fails_the_requests_of_http1() {
    let server = Server::start(Speaks::Http2 { streams: 10 }, |_, _| Reply::status(200));
    let report = load(server.address);
    assert_eq!(report.totals.completed, 0, "{:?}", report.totals);
    assert!(report.connections.lost > 0);
}
