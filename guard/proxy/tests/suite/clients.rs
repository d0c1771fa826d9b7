//! Clients that go away, are slow, or never read: their places and connections are freed. Does not
//! contain backends that fail.

use crate::harness::{Backend, Hold, Wire, connect, metric, queued, rejected, settle, start};
use leeward_observe::Source;
use leeward_testkit::require::retry_if_busy;
use leeward_testkit::wait::until;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn a_client_that_goes_away_leaves_the_queue() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut first = connect(&proxy);
    first.send("GET /first HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    let mut second = connect(&proxy);
    second.send("GET /second HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    drop(second);
    queued(&proxy, 0);
    hold.open();
    assert_eq!(first.answer().text(), "/first");
    assert_eq!(first.get("/third").text(), "/third");
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.arrived, snapshot.completed, rejected(&snapshot)), (3, 2, 1));
    assert!(snapshot.refused.iter().any(|of| of.reason == "cancelled" && of.count == 1));
    assert_eq!(hold.arrived(2), ["/first", "/third"]);
}

#[test]
fn a_client_that_goes_away_takes_its_request_from_the_backend() {
    let (sees_end, flag) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (seen, reached) = (Arc::clone(&sees_end), Arc::clone(&flag));
    let backend = Backend::start(move |exchange| {
        if exchange.head.target() == "/slow" {
            reached.store(true, Ordering::SeqCst);
            // The next bytes are the end of the connection.
            seen.store(exchange.wire.exactly(1).is_none(), Ordering::SeqCst);
            return exchange.close();
        }
        exchange.ok("next");
    });
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut client = connect(&proxy);
    client.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n");
    until("the backend has it", || flag.load(Ordering::SeqCst));
    let mut waiting = connect(&proxy);
    waiting.send("GET /next HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    drop(client);
    assert_eq!(waiting.answer().text(), "next", "the place is free");
    until("the backend sees the end", || sees_end.load(Ordering::SeqCst));
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.abandoned), (1, 1));
}

#[test]
fn an_upload_that_is_refused_gets_its_answer() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    for _ in 0..20 {
        let mut client = connect(&proxy);
        client.send("POST / HTTP/1.1\r\nhost: h\r\nhost: i\r\ncontent-length: 3000000\r\n\r\n");
        // Many clients give up at a write that fails, and read nothing more.
        client.stream.write_all(&vec![b'a'; 3_000_000]).unwrap();
        assert_eq!(client.answer().head.status(), 400);
        client.closed();
    }
}

/// Nobody reads the end behind bytes that nobody reads.
#[test]
fn a_client_that_goes_away_behind_unread_bytes_is_noticed() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut client = connect(&proxy);
    client.send("GET /first HTTP/1.1\r\nhost: h\r\n\r\nGET /pipelined HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    drop(client);
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.arrived, snapshot.abandoned), (1, 1));
    hold.open();
}

#[test]
fn a_client_that_goes_away_in_an_answer_abandons_it() {
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "a".repeat(1 << 16));
        while std::io::Write::write_all(&mut exchange.wire.stream, chunk.as_bytes()).is_ok() {}
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    client.exactly(1 << 18);
    drop(client);
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.abandoned), (0, 1));
    until("the backend's connection ends", || backend.requests().len() == 1);
}

/// A backend that answers `/large` with far more than sockets hold.
fn large() -> Backend {
    Backend::start(|exchange| {
        if exchange.head.target() == "/large" {
            exchange.message();
            exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
            let piece = vec![b'a'; 1 << 20];
            let mut left = 100_000_000;
            while left > 0 {
                let now = piece.len().min(left);
                if std::io::Write::write_all(&mut exchange.wire.stream, &piece[..now]).is_err() {
                    return exchange.close();
                }
                left -= now;
            }
        } else {
            exchange.ok("small");
        }
    })
}

#[test]
fn a_client_that_never_reads_frees_its_place_and_then_its_connection() {
    let backend = large();
    let proxy = start(&[backend.address], "limit = \"1\"\nslo = \"200ms\"\n[timeouts]\nclient-idle = \"2s\"");
    let mut client = connect(&proxy);
    client.send("GET /large HTTP/1.1\r\nhost: h\r\n\r\n");
    until("its place is free", || {
        let snapshot = proxy.admission().snapshot();
        snapshot.in_flight == 1 && metric(proxy.admission(), "leeward_proxy_backend_in_flight") == 0.0
    });
    let mut other = connect(&proxy);
    until("others go on", || other.get("/").text() == "small");
    let snapshot = settle(&proxy);
    assert_eq!(snapshot.abandoned, 1);
    let answer = client.answer();
    assert!(answer.is_cut, "{}", answer.body.len());
}

#[test]
fn a_client_that_reads_at_last_gets_everything() {
    let backend = large();
    let proxy = start(&[backend.address], "limit = \"1\"\nslo = \"200ms\"");
    let mut client = connect(&proxy);
    client.send("GET /large HTTP/1.1\r\nhost: h\r\n\r\n");
    until("its place is free", || {
        let snapshot = proxy.admission().snapshot();
        snapshot.in_flight == 1 && metric(proxy.admission(), "leeward_proxy_backend_in_flight") == 0.0
    });
    let answer = client.answer();
    assert_eq!((answer.body.len(), answer.is_cut), (100_000_000, false));
    assert_eq!(settle(&proxy).completed, 1);
}

/// hyper keeps what the socket has no room for. Which sizes leave something there depends on the
/// system's buffers, so these sizes surround them.
#[test]
fn a_client_that_pauses_gets_the_end_of_its_response() {
    let backend = Backend::start(|exchange| {
        let length: usize = exchange.head.target()[1..].parse().unwrap();
        exchange.message();
        exchange.raw(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
        exchange.raw(vec![b'a'; length]);
    });
    let proxy = start(&[backend.address], "slo = \"30s\"");
    let mut clients: Vec<_> = (1..=80)
        .map(|part| {
            let (mut client, length) = (connect(&proxy), part * (64 << 10));
            client.send(format!("GET /{length} HTTP/1.1\r\nhost: h\r\n\r\n"));
            (client, length)
        })
        .collect();
    sleep(Duration::from_millis(1_000));
    for (client, length) in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.body.len(), answer.is_cut), (*length, false));
    }
    assert_eq!(settle(&proxy).completed, 80);
}

#[test]
fn a_client_that_uploads_slowly_frees_its_place() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "limit = \"1\"\nslo = \"200ms\"");
    let mut client = connect(&proxy);
    client.send("POST /slow HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n");
    let mut sent = 0;
    until("its place is free", || {
        // A byte now and then does not make it faster.
        client.send("a");
        sent += 1;
        sleep(Duration::from_millis(5));
        sent > 1 && metric(proxy.admission(), "leeward_proxy_backend_in_flight") == 0.0
    });
    let mut other = connect(&proxy);
    until("others go on", || other.get("/other").text() == "/other");
    client.send("a".repeat(100_000 - sent));
    assert_eq!(client.answer().text(), "/slow");
    let snapshot = settle(&proxy);
    assert_eq!(snapshot.abandoned, 0);
}

#[test]
fn a_client_that_stops_in_a_body_is_told() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "[timeouts]\nclient-idle = \"100ms\"");
    let mut client = connect(&proxy);
    client.send("POST /part HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc");
    let answer = client.answer().head;
    assert_eq!((answer.status(), answer.get("leeward-reason")), (408, Some("client-timeout".into())));
    client.closed();
    assert_eq!(settle(&proxy).abandoned, 1);
    assert!(backend.request(1).is_cut, "the backend sees the cut");
}

/// Neither its time nor its end is the backend's doing. A limit that took it for that would fall
/// to 1, and a few clients that hang up would take the service from all others.
#[test]
fn an_upload_that_never_ends_says_nothing_about_the_backend() {
    let backend = Backend::start(|exchange| match exchange.head.target() {
        "/answered" => {
            // As servers do that have waited for the body for too long.
            sleep(Duration::from_millis(20));
            exchange.raw("HTTP/1.1 408 Late\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            exchange.close();
        }
        _ => exchange.ok("whole"),
    });
    let proxy = start(&[backend.address], "[timeouts]\nclient-idle = \"100ms\"");
    let learnt = || metric(proxy.admission(), "leeward_proxy_backend_sojourn_seconds");
    let length = "content-length: 100\r\n\r\nabc";
    let uploads = [
        ("/gone", length, true),
        ("/stalled", length, false),
        ("/answered", length, false),
        ("/chunks", "transfer-encoding: chunked\r\n\r\n3\r\nabcx\r\n", false),
    ];
    for (count, (path, rest, hangs_up)) in uploads.into_iter().enumerate() {
        let mut client = connect(&proxy);
        client.send(format!("POST {path} HTTP/1.1\r\nhost: h\r\n{rest}"));
        until("it has arrived", || proxy.admission().snapshot().arrived == count as u64 + 1);
        if !hangs_up {
            client.rest();
        }
        drop(client);
        settle(&proxy);
        assert_eq!(learnt(), 0.0, "{path}");
    }
    let mut client = connect(&proxy);
    client.send("POST /whole HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(client.answer().text(), "whole");
    settle(&proxy);
    assert!(learnt() > 0.0);
}

#[test]
fn idle_connections_and_slow_heads_end() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "[timeouts]\nclient = \"1s\"");
    let mut idle = connect(&proxy);
    idle.closed();
    let mut slow = connect(&proxy);
    slow.send("GET / HTTP/1.1\r\nhos");
    slow.rest();
    let mut served = connect(&proxy);
    assert_eq!(served.get("/").text(), "/");
    served.rest();
    assert_eq!(settle(&proxy).completed, 1);
}

#[test]
fn no_more_connections_than_the_settings_allow_are_served() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "connections = 3");
    let mut clients: Vec<_> = (0..6).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    }
    hold.arrived(3);
    sleep(Duration::from_millis(100));
    assert_eq!(proxy.admission().snapshot().arrived, 3);
    hold.open();
    for client in &mut clients {
        assert_eq!(client.answer().text(), "/");
    }
    assert_eq!(settle(&proxy).completed, 6);
}

/// Browsers stay connected: a proxy that is full of them takes new ones as fast as they come, not
/// at an interval of its own.
#[test]
fn idle_connections_make_room_at_once() {
    retry_if_busy(|| {
        let backend = Backend::echo();
        let proxy = start(&[backend.address], "connections = 200");
        let ask = || {
            let mut client = connect(&proxy);
            assert_eq!(client.get("/").text(), "/");
            client
        };
        let mut clients: Vec<Wire> = (0..199).map(|_| ask()).collect();
        assert_eq!(proxy.admission().snapshot().connections, Some(199));
        assert_eq!(metric(proxy.admission(), "leeward_proxy_connection_limit"), 200.0);
        // A connection sleeps, and may end, after some time without requests.
        sleep(Duration::from_millis(1_000));
        let began = Instant::now();
        clients.extend((0..150).map(|_| ask()));
        let took = began.elapsed();
        let open = proxy.admission().snapshot().connections;
        assert!(open.is_some_and(|open| open <= 200), "{open:?}");
        if took < Duration::from_secs(1) { Ok(()) } else { Err(format!("150 clients took {took:?}")) }
    });
}
