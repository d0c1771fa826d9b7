//! Connections that leave HTTP, and event streams. Does not contain requests that end.

use crate::harness::{Backend, Hold, connect, metric, settle, start};
use leeward_observe::Source;
use leeward_testkit::wait::until;
use std::net::Shutdown;

const ASK: &str = "GET /ws HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n";

/// A backend that changes to a protocol in which it says what it hears, until one side ends.
fn tunnel() -> Backend {
    Backend::start(|exchange| {
        if exchange.head.get("upgrade").is_none() {
            return exchange.ok("no upgrade");
        }
        exchange.raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello");
        while let Some(byte) = exchange.wire.exactly(1) {
            exchange.raw(&byte);
            if byte == b"!" {
                break;
            }
        }
        exchange.close();
    })
}

#[test]
fn bytes_pass_both_ways_until_one_side_closes() {
    let backend = tunnel();
    let proxy = start(&[backend.address], "");
    for end in ["client", "backend"] {
        let mut client = connect(&proxy);
        // Bytes that follow at once are the tunnel's.
        client.send(format!("{ASK}early"));
        let answer = client.answer().head;
        assert_eq!((answer.status(), answer.get("upgrade")), (101, Some("websocket".into())));
        assert_eq!(client.exactly(10), Some(b"helloearly".to_vec()));
        client.send("more");
        assert_eq!(client.exactly(4), Some(b"more".to_vec()));
        // The place was free since the head.
        assert_eq!(proxy.admission().snapshot().in_flight, 0);
        if end == "client" {
            client.stream.shutdown(Shutdown::Write).unwrap();
            client.closed();
        } else {
            client.send("!");
            assert_eq!(client.exactly(1), Some(b"!".to_vec()));
            client.closed();
        }
    }
    until("the backend's sides end", || backend.requests().len() == 2);
    settle(&proxy);
}

#[test]
fn an_upgrade_that_the_backend_ignores_is_a_request() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send(ASK);
    assert_eq!(client.answer().text(), "/ws");
    assert_eq!(client.get("/next").text(), "/next");
}

#[test]
fn http_2_is_no_tunnel() {
    let backend = tunnel();
    let proxy = start(&[backend.address], "");
    for protocol in ["h2c", "websocket, h2c", "HTTP/2.0"] {
        let mut client = connect(&proxy);
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: h\r\nupgrade: {protocol}\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\
             connection: upgrade, http2-settings\r\n\r\n"
        ));
        assert_eq!(client.answer().text(), "no upgrade", "{protocol}");
    }
    assert!(backend.requests().iter().all(|request| request.head.get("http2-settings").is_none()));
}

#[test]
fn a_change_of_protocol_that_nobody_asked_for_is_no_answer() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    });
    let proxy = start(&[backend.address], "");
    let answer = connect(&proxy).get("/");
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (502, Some("backend-malformed".into())));
    settle(&proxy);
}

/// A tunnel is an open connection: the bound holds for it, too.
#[test]
fn tunnels_count_as_connections() {
    let backend = tunnel();
    let proxy = start(&[backend.address], "connections = 1\nthreads = 1");
    let mut first = connect(&proxy);
    first.send(ASK);
    assert_eq!(first.answer().head.status(), 101);
    let mut second = connect(&proxy);
    second.send("GET /second HTTP/1.1\r\nhost: h\r\n\r\n");
    // The first one works while the second one waits to be accepted.
    first.exactly(5);
    for _ in 0..50 {
        first.send("x");
        assert_eq!(first.exactly(1), Some(b"x".to_vec()));
    }
    assert_eq!(proxy.admission().snapshot().arrived, 1);
    drop(first);
    assert_eq!(second.answer().text(), "no upgrade");
}

#[test]
fn an_event_stream_frees_its_place_with_its_head() {
    let hold = Hold::default();
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        if exchange.head.target() != "/events" {
            return exchange.ok("other");
        }
        exchange.raw(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        exchange.raw("8\r\ndata: 1\n\r\n");
        held.pass("events");
        exchange.raw("8\r\ndata: 2\n\r\n0\r\n\r\n");
    });
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut client = connect(&proxy);
    client.send("GET /events HTTP/1.1\r\nhost: h\r\n\r\n");
    let head = client.head().expect("a head");
    assert_eq!(head.status(), 200);
    assert_eq!(client.exactly(13), Some(b"8\r\ndata: 1\n\r\n".to_vec()), "events are not held back");
    assert_eq!(metric(proxy.admission(), "leeward_proxy_backend_in_flight"), 0.0);
    assert_eq!(connect(&proxy).get("/").text(), "other");
    hold.open();
    assert_eq!(client.exactly(18), Some(b"8\r\ndata: 2\n\r\n0\r\n\r\n".to_vec()));
    assert_eq!(settle(&proxy).completed, 2);
}

#[test]
fn a_place_can_end_with_the_first_byte() {
    let hold = Hold::default();
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc");
        if exchange.head.target() == "/tokens" {
            held.pass("tokens");
        }
        exchange.raw("def");
    });
    let proxy = start(&[backend.address], "limit = \"1\"\nuntil = \"first-byte\"");
    let mut client = connect(&proxy);
    client.send("GET /tokens HTTP/1.1\r\nhost: h\r\n\r\n");
    client.head().expect("a head");
    client.exactly(3);
    assert_eq!(connect(&proxy).get("/").text(), "abcdef");
    hold.open();
    client.exactly(3);
    assert_eq!(settle(&proxy).completed, 2);
}
