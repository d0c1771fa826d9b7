//! HTTP/2: streams, the server's limit of them, time-outs, and servers that want to close.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use leeward_core::units::Nanos;
use leeward_http_load::{HttpLoadConfig, HttpVersion};
use leeward_load::report::RunEndReason;

use crate::support::{InFlight, Reply, Server, Speaks, closed, config, open, raw_server, run};

fn http2(server: &Server) -> HttpLoadConfig {
    HttpLoadConfig { version: HttpVersion::Http2, ..config(server.address) }
}

#[test]
fn one_connection_carries_many_requests() {
    let delay = Duration::from_millis(20);
    let server = Server::start(Speaks::Http2 { streams: 200 }, move |head, content| {
        assert_eq!((head.uri.scheme_str(), content), (Some("http"), &b""[..]));
        Reply { delay, content: b"12345".to_vec(), ..Reply::status(200) }
    });
    // 20 requests in flight on average, which HTTP/1.1 would need 20 connections for.
    let report = run(&http2(&server), &open(1_000.0, 1));
    assert_eq!((report.totals.completed, report.connections.opened), (report.planned, 1));
    assert_eq!(report.content_bytes, 5 * report.planned);
}

#[test]
fn the_servers_limit_of_streams_is_kept() {
    let highest = Arc::new(AtomicUsize::new(0));
    let (count, peak) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&highest));
    let server = Server::start(Speaks::Http2 { streams: 5 }, move |_, _| {
        let (in_flight, now) = InFlight::begin(&count);
        peak.fetch_max(now, SeqCst);
        Reply { delay: Duration::from_millis(10), in_flight: Some(in_flight), ..Reply::status(200) }
    });
    let report = run(&http2(&server), &open(1_000.0, 1));
    assert_eq!((report.totals.completed, report.totals.failed), (report.planned, 0), "{:?}", report.failures);
    assert!((1..=5).contains(&highest.load(SeqCst)), "{highest:?}");
}

#[test]
fn a_stream_is_given_up_and_its_connection_goes_on() {
    let turn = AtomicU64::new(0);
    let server = Server::start(Speaks::Http2 { streams: 100 }, move |_, _| {
        let is_hanging = turn.fetch_add(1, SeqCst).is_multiple_of(10);
        Reply { delay: Duration::from_secs(if is_hanging { 60 } else { 0 }), ..Reply::status(200) }
    });
    let timeout = Some(Nanos::from_millis(300));
    let report = run(&HttpLoadConfig { timeout, ..http2(&server) }, &open(200.0, 2));
    let totals = report.totals;
    assert_eq!((report.ending, totals.completed + totals.timed_out), (RunEndReason::Finished, report.planned));
    assert!(totals.timed_out > 0 && report.connections.reopened == 0, "{totals:?}");
}

#[test]
fn a_closed_loop_keeps_its_streams() {
    let server = Server::start(Speaks::Http2 { streams: 100 }, |_, _| Reply::status(200));
    let report = run(&http2(&server), &closed(2, 10));
    assert!(report.totals.completed > 20 && report.totals.failed == 0, "{:?}", report.totals);
}

#[test]
fn a_server_that_takes_no_more_requests_gets_them_on_another_connection() {
    // By hand: settings, then GOAWAY with last stream 0 for the first request of the first
    // connection; a second server answers all others.
    let server = Server::start(Speaks::Http2 { streams: 100 }, |_, _| Reply::status(200));
    let behind = server.address;
    let connections = AtomicU64::new(0);
    let address = raw_server(move |mut client| {
        if connections.fetch_add(1, SeqCst) == 0 {
            let _ = client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
            let mut bytes = vec![0; 4096];
            let mut read = 0;
            // The preface, settings and the window take less than 100 bytes; a HEADERS frame
            // follows.
            while read < 100 {
                match client.read(&mut bytes) {
                    Ok(count) if count > 0 => read += count,
                    _ => return,
                }
            }
            let _ = client.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            std::thread::sleep(Duration::from_millis(50));
            return;
        }
        let server = std::net::TcpStream::connect(behind).unwrap();
        let copy = |mut from: std::net::TcpStream, mut to: std::net::TcpStream| {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            })
        };
        let both = [copy(client.try_clone().unwrap(), server.try_clone().unwrap()), copy(server, client)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let config = HttpLoadConfig { version: HttpVersion::Http2, ..config(address) };
    let report = run(&config, &open(200.0, 1));
    assert_eq!(report.totals.completed, report.planned, "{report:?}");
    assert!(report.connections.reopened > 0);
}
