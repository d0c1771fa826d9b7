//! Heads that somebody on the way could read as something else are rejected, and what follows them
//! on the connection is not read. `tests/framing` compares many more with other proxies. Does not
//! contain valid messages.

use crate::harness::{Backend, connect, metric, settle, start};
use leeward_testkit::fuzz::FuzzSearch;
use leeward_testkit::random::Random;
use std::path::Path;

const NEXT: &str = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";

#[test]
fn ambiguous_heads_are_rejected_and_end_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let post = "POST / HTTP/1.1\r\nhost: h\r\n";
    let rejected = [
        format!("{post}content-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
        format!("{post}content-length: 3, 3\r\n\r\nabc"),
        format!("{post}content-length: +3\r\n\r\nabc"),
        format!("{post}content-length: 0x3\r\n\r\nabc"),
        format!("{post}content-length: \r\n\r\n"),
        format!("{post}content-length: 99999999999999999999\r\n\r\n"),
        format!("{post}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: chunked;a=b\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("{post} transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}x: a\r\n b\r\n\r\n"),
        format!("{post}x: a\0b\r\n\r\n"),
        format!("{post}x: a\rb\r\n\r\n"),
        "POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        "GET / HTTP/1.1\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a:80:80\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: a:x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: [::1\r\n\r\n".into(),
        "GET http://user@other/ HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        "GET ftp://other/ HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        "GET other:80 HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        "GET * HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        "GET /a b HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        "CONNECT other:443 HTTP/1.1\r\nhost: other:443\r\n\r\n".into(),
        "GET /\r\n\r\n".into(),
        "GET / HTTP/2.0\r\nhost: h\r\n\r\n".into(),
        "GET / HTTP/1.2\r\nhost: h\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nS\r\n\r\n".into(),
    ];
    for head in &rejected {
        let mut client = connect(&proxy);
        client.send(format!("{head}{NEXT}"));
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "" | "400" | "501"), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), usize::from(!answer.is_empty()), "{head:?}: {answer}");
    }
    assert!(backend.requests().is_empty(), "{:?}", backend.requests());
    let counted = metric(proxy.admission(), "leeward_proxy_bad_requests_total");
    assert_eq!(counted as usize, rejected.len());
    assert_eq!(settle(&proxy).arrived, 0);
}

#[test]
fn bad_chunks_reach_the_backend_as_a_cut_body() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let bodies = [
        "x\r\n",
        "-1\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
        "3 \n",
        "\r\n",
    ];
    for body in bodies {
        let mut client = connect(&proxy);
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{body}{NEXT}"));
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{body:?}: {answer}");
    }
    assert!(backend.requests().iter().all(|request| request.is_cut), "{:?}", backend.requests());
    settle(&proxy);
}

#[test]
fn a_length_beside_chunks_never_counts() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n{NEXT}"
    ));
    let answer = String::from_utf8_lossy(&client.rest()).into_owned();
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    for request in backend.requests() {
        assert_eq!((request.text(), request.head.get("content-length")), ("ab".into(), None));
    }
}

/// Everybody on the way reads the same of them (RFC 9112 §6.3).
#[test]
fn equal_lengths_are_one() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(client.answer().text(), "/a");
    let request = backend.request(1);
    assert_eq!((request.text(), request.head.get("content-length")), ("abc".into(), Some("3".into())));
}

#[test]
fn long_heads_are_rejected() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    for (head, status) in [
        (format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "a".repeat(1 << 20)), 431),
        (format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "a".repeat(1 << 20)), 431),
        (format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "a".repeat(100_000)), 431),
        (format!("GET / HTTP/1.1\r\nhost: h\r\n{many}\r\n"), 431),
    ] {
        let mut client = connect(&proxy);
        client.send(head);
        // The connection may be reset while bytes are under way: then there is no answer.
        if let Some(answer) = client.head() {
            assert_eq!(answer.status(), status);
        }
    }
    assert!(backend.requests().is_empty());
}

/// Requests from which mutants are made.
const SEEDS: [&[u8]; 6] = [
    b"GET /a?b HTTP/1.1\r\nhost: h\r\nconnection: keep-alive, x\r\nx: 1\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: h:80\r\ncontent-length: 3\r\nleeward: b=100,p=3,a=1\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nhost: [::1]\r\ntransfer-encoding: chunked\r\ntrailer: t\r\n\r\n3;a=b\r\nabc\r\n0\r\nt: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"OPTIONS * HTTP/1.0\r\nforwarded: for=1\r\nx-forwarded-for: 1, 2\r\nte: trailers;q=1\r\n\r\n",
    b"PUT http://h/x HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nab",
];

fn mutant(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(2) {
        bytes.extend_from_slice(SEEDS[random.below(SEEDS.len())]);
    }
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.byte(b"\r\n\0 \t:;,/#@[]%*\x7f\xff019af"),
            1 => bytes.insert(at, random.byte(b"\r\n\0 \t:;,/#@[]%*\x7f\xff019af")),
            2 => drop(bytes.remove(at)),
            _ => {
                let end = (at + random.below(24)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// Whatever bytes come, the proxy goes on and loses count of nothing.
#[test]
fn any_bytes_leave_the_proxy_well() {
    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let proxy = start(&[backend.address], "[timeouts]\nclient = \"50ms\"\nclient-idle = \"50ms\"");
    let findings = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let search = FuzzSearch { name: "proxy-heads", findings, iterations: 2_000 };
    search.run(mutant, |_, bytes| {
        let mut client = connect(&proxy);
        client.send(bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let _ = client.rest();
    });
    assert_eq!(connect(&proxy).get("/").head.status(), 200);
    settle(&proxy);
}
