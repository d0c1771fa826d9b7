//! Messages of HTTP/1 through the proxy: keep-alive, chunks, trailers, answers without bodies, old
//! clients, expectations. Does not contain headers or malformed messages.

use crate::harness::{Backend, Hold, connect, queued, settle, start};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "threads = 1");
    let mut client = connect(&proxy);
    for number in 0..20 {
        let answer = client.get(&format!("/{number}"));
        assert_eq!((answer.head.status(), answer.text()), (200, format!("/{number}")));
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1, "the backend's connection is kept, too");
    assert_eq!(settle(&proxy).completed, 20);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    let requests: String = (0..50)
        .map(|number| match number % 2 {
            0 => format!("GET /{number} HTTP/1.1\r\nhost: h\r\n\r\n"),
            _ => format!("POST /{number} HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody"),
        })
        .collect();
    client.send(requests);
    for number in 0..50 {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    assert_eq!(settle(&proxy).completed, 50);
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
             3\r\nabc\r\n2;name=value\r\nde\r\n0\r\nx-sum: 5\r\n\r\n",
        );
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    for _ in 0..2 {
        client.send(
            "POST / HTTP/1.1\r\nhost: h\r\nte: trailers\r\ntransfer-encoding: chunked\r\ntrailer: x-check\r\n\r\n\
             4;a=b\r\nbody\r\n1\r\n!\r\n0\r\nx-check: 7\r\ncontent-length: 3\r\n\r\n",
        );
        let answer = client.answer();
        assert_eq!(answer.text(), "abcde");
        assert_eq!(answer.trailers, [("x-sum".into(), "5".into())]);
    }
    let request = backend.request(2);
    assert_eq!(request.text(), "body!");
    assert_eq!(request.trailers, [("x-check".into(), "7".into())], "no trailer that frames");
    // Without `te: trailers`, the client gets none.
    let answer = client.get("/");
    assert_eq!((answer.text(), answer.trailers.len()), ("abcde".into(), 0));
}

#[test]
fn answers_without_bodies_keep_their_lengths_to_themselves() {
    let backend = Backend::start(|exchange| {
        let status = exchange.head.target()[1..].to_owned();
        exchange.raw(format!("HTTP/1.1 {status} Word\r\ncontent-length: 5\r\netag: \"a\"\r\n\r\n"));
        if status == "200" && exchange.head.line.starts_with("GET") {
            exchange.raw("12345");
        }
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("HEAD /200 HTTP/1.1\r\nhost: h\r\n\r\n");
    let answer = client.answer_to("HEAD");
    assert_eq!((answer.head.status(), answer.head.get("content-length")), (200, Some("5".into())));
    for status in [304, 200] {
        let answer = client.get(&format!("/{status}"));
        assert_eq!(answer.head.status(), status);
        assert_eq!(answer.head.get("etag"), Some("\"a\"".into()));
    }
    client.send("GET /204 HTTP/1.1\r\nhost: h\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.head.status(), answer.head.get("content-length")), (204, None));
    assert_eq!(client.get("/200").text(), "12345");
    assert_eq!(settle(&proxy).completed, 5);
}

#[test]
fn a_length_that_is_stated_twice_is_passed_on_once() {
    let backend = Backend::start(|exchange| exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\nabc"));
    let proxy = start(&[backend.address], "");
    let answer = connect(&proxy).get("/");
    assert_eq!((answer.text(), answer.head.get("content-length")), ("abc".into(), Some("3".into())));
}

#[test]
fn a_head_request_that_is_answered_by_the_proxy_has_no_body() {
    let address = leeward_testkit::net::vacant_address();
    let proxy = start(&[address], "");
    let mut client = connect(&proxy);
    for _ in 0..3 {
        client.send("HEAD / HTTP/1.1\r\nhost: h\r\n\r\n");
        let answer = client.answer_to("HEAD");
        assert_eq!(
            (answer.head.status(), answer.head.get("leeward-reason")),
            (502, Some("backend-unreachable".into()))
        );
    }
}

#[test]
fn interim_answers_are_skipped() {
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        exchange.ok("done");
    });
    let proxy = start(&[backend.address], "");
    assert_eq!(connect(&proxy).get("/").text(), "done");
}

#[test]
fn clients_of_http_1_0_are_served() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("GET /old HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.head.get("transfer-encoding")), ("abc".into(), None), "no chunks for HTTP/1.0");
    let request = backend.request(1);
    assert_eq!((request.head.line.as_str(), request.head.get("host")), ("GET /old HTTP/1.1", Some(String::new())));
    assert_eq!(request.head.get("via"), Some("1.0 leeward".into()));

    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    for number in 0..3 {
        client.send(format!("GET /{number} HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"));
        let answer = client.answer();
        assert_eq!((answer.text(), answer.head.get("connection")), (format!("/{number}"), Some("keep-alive".into())));
    }
}

/// The end of the connection would tell such a client that it has the whole response.
#[test]
fn a_client_of_http_1_0_sees_that_a_response_is_cut() {
    let hold = Hold::default();
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
        held.pass("cut");
        exchange.raw("zz\r\n");
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.0\r\n\r\n");
    client.head().expect("a head");
    assert_eq!(client.exactly(3), Some(b"abc".to_vec()));
    hold.release(1);
    let end = client.stream.read(&mut [0]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    settle(&proxy);
}

/// RFC 9110 §7.6.2.
#[test]
fn the_last_proxy_of_a_limited_request_answers_it() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    let mut ask = |method: &str, forwards: &str| {
        client.send(format!("{method} /a HTTP/1.1\r\nhost: h\r\nmax-forwards: {forwards}\r\n\r\n"));
        client.answer_to(method).head
    };
    let answer = ask("OPTIONS", "0");
    assert_eq!((answer.status(), answer.get("leeward-reason")), (200, Some("max-forwards".into())));
    assert_eq!(answer.get("content-length"), Some("0".into()));
    for (method, forwards, left) in [("OPTIONS", "10", "9"), ("GET", "0", "0"), ("OPTIONS", "x", "x")] {
        assert_eq!(ask(method, forwards).get("leeward-reason"), None, "{method} {forwards}");
        let request = backend.requests().pop().expect("it passes");
        assert_eq!(request.head.get("max-forwards"), Some(left.into()), "{method} {forwards}");
    }
    assert_eq!(ask("TRACE", "0").status(), 501);
}

#[test]
fn a_connection_closes_when_its_client_asks() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(client.answer().text(), "/");
    client.closed();
    assert_eq!(backend.request(1).head.get("connection"), None, "the backend's connection stays");
}

#[test]
fn a_body_is_not_asked_for_before_its_request_has_a_place() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut first = connect(&proxy);
    first.send("GET /first HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    let mut second = connect(&proxy);
    second.send("POST /second HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
    queued(&proxy, 1);
    hold.release(1);
    assert_eq!(first.answer().text(), "/first");
    // Only now does the proxy ask for the body.
    let interim = second.head().expect("an interim answer");
    assert_eq!(interim.status(), 100);
    second.send("body");
    hold.release(1);
    assert_eq!(second.answer().text(), "/second");
    let request = backend.request(2);
    assert_eq!((request.text(), request.head.get("expect")), ("body".into(), None));
    // A body in front of which the request is rejected is never asked for.
    let mut third = connect(&proxy);
    third.send("POST /third HTTP/1.1\r\nhost: h\r\nleeward: b=0\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
    let answer = third.head().expect("an answer");
    assert_eq!((answer.status(), answer.get("connection")), (503, Some("close".into())));
    hold.open();
    settle(&proxy);
}

#[test]
fn large_bodies_pass_both_ways() {
    let backend = Backend::start(|exchange| {
        let message = exchange.message();
        exchange.raw(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", message.body.len()));
        exchange.raw(&message.body);
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    let body: Arc<Vec<u8>> = Arc::new((0..3_000_000_u32).map(|at| (at % 251) as u8).collect());
    client.send(format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len()));
    client.send(body.as_slice());
    assert!(client.answer().body == *body);
    assert_eq!(settle(&proxy).completed, 1);
}

#[test]
fn bodies_that_end_with_the_connection_are_whole() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\n\r\nuntil the end");
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.text(), answer.is_cut), ("until the end".into(), false));
    }
}

#[test]
fn the_body_of_any_method_arrives() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    let mut count = 0;
    for method in ["GET", "DELETE", "OPTIONS", "PURGE"] {
        for framed in ["content-length: 3\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"] {
            client.send(format!("{method} /a HTTP/1.1\r\nhost: h\r\n{framed}"));
            assert_eq!(client.answer().text(), "/a");
            count += 1;
            assert_eq!(backend.request(count).text(), "abc", "{method} {framed}");
        }
    }
}

#[test]
fn a_length_beside_chunks_of_an_answer_never_counts() {
    for framed in ["content-length: 3\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 3"]
    {
        let backend = Backend::start(move |exchange| {
            exchange.message();
            exchange.raw(format!("HTTP/1.1 200 OK\r\n{framed}\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"));
        });
        let proxy = start(&[backend.address], "");
        let mut client = connect(&proxy);
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!((answer.text(), answer.head.get("content-length")), ("abcdef".into(), None), "{framed}");
        }
    }
}

#[test]
fn backends_of_http_1_0_are_served() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.0 200 OK\r\n\r\nold");
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.head.line.as_str(), answer.text()), ("HTTP/1.1 200 OK", "old".into()));
    }
}
