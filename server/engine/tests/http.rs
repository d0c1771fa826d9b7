//! Tests of the example `http` over real sockets: a client's view, and clients that break the
//! rules.

#[path = "../examples/http/protocol.rs"]
mod protocol;
#[path = "../../http1/tests/suite/requests.rs"]
mod requests;

use leeward_engine::{Server, Statistics};
use leeward_runtime::IdlePolicy;
use leeward_testkit::greetings::GREETINGS;
use protocol::Http;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn serve(controller: &str, handler: fn(&str) -> String) -> Server {
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let builder = Http::default().idle(IdlePolicy::Block).admission(&algorithm, algorithm.params(&[]).unwrap());
    builder.start("127.0.0.1:0", "/hello", handler).unwrap()
}

/// Sends `bytes`, ends its half, and returns everything received.
fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The write may fail after the server has closed the connection.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    String::from_utf8(received).unwrap()
}

/// Status codes of all responses.
fn statuses(received: &str) -> Vec<u16> {
    received.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect()
}

/// Each stream is followed by one more request, which is answered only if the connection goes on.
#[test]
fn requests_follow_the_framing_rules() {
    let server = serve("none", |_| String::new());
    for (bytes, expected, goes_on) in requests::rows() {
        let last = "GET /last HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let reply = exchange(&server, &[&bytes, last.as_bytes()].concat());
        let expected = if goes_on { [&expected[..], &[404]].concat() } else { expected };
        assert_eq!(statuses(&reply), expected, "{:?}\n{reply}", String::from_utf8_lossy(&bytes));
        let answers: Vec<&str> = reply.split("HTTP/1.1 ").skip(1).collect();
        let at_end = if goes_on { "keep-alive" } else { "close" };
        assert!(answers[answers.len() - 1].contains(&format!("connection: {at_end}\r\n")), "{reply}");
        assert!(answers.iter().all(|answer| answer.contains("allow: GET\r\n") == answer.starts_with("405")), "{reply}");
    }
    assert_eq!(server.stop().unwrap().abandoned, 0);
}

#[test]
fn routes_are_answered_and_violations_end_the_connection() {
    let server = serve("none", |query| if query == "panic" { panic!("as asked") } else { format!("hello {query}") });
    let long = format!("GET /hello HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(20_000));
    let get = |target: &str, field: &str| format!("GET {target} HTTP/1.1\r\nhost: a\r\n{field}\r\n");
    let cases: [(String, &[u16]); 8] = [
        (get("/hello?you", "") + &get("/healthz", "") + &get("/", ""), &[200, 200, 404]),
        ("PUT /hello HTTP/1.1\r\nhost: a\r\n\r\nGET /hello HTTP/1.0\r\n\r\n".into(), &[405, 200]),
        (get("/hello?panic", "") + &get("http://b/hello", ""), &[500, 200]),
        (get("/hello", "connection: TE, close\r\n") + &get("/hello", ""), &[200]),
        (get("/hello", "content-length: 5\r\n") + "12345", &[413]),
        (get("/hello", "content-length: 0\r\ncontent-length: 34\r\n") + &get("/hello", ""), &[400]),
        ("\x16\x03\x01 what\r\n\r\n".into(), &[400]),
        (long, &[431]),
    ];
    for (request, codes) in cases {
        let received = exchange(&server, request.as_bytes());
        assert_eq!(statuses(&received), codes, "{received}");
    }
    assert!(exchange(&server, get("/hello?a?b", "").as_bytes()).ends_with("\r\n\r\nhello a?b"));
    let received = exchange(&server, b"GET /statistics HTTP/1.0\r\n\r\n");
    let body = received.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(Statistics::parse(body.as_bytes()).unwrap().completed, 6, "{body}");
    assert_eq!(server.stop().unwrap().abandoned, 0);
}

/// Clients of other protocols get an HTTP response and a close; none of their bytes is executed.
#[test]
fn clients_of_other_protocols_are_refused() {
    let server = serve("none", |_| String::new());
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "HTTP/1") {
        let codes = statuses(&exchange(&server, bytes));
        assert!(matches!(codes[..], [400 | 505]), "{name}: {codes:?}");
    }
    // Bytes after a request are another request, and are not read as anything else.
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name == "HTTP/1") {
        let received = exchange(&server, bytes);
        let codes = statuses(&received);
        assert!(!received.contains("STORED") && *codes.last().unwrap() >= 400, "{name}: {codes:?}");
    }
    assert_eq!((server.counts().received, server.counts().abandoned), (0, 0));
    server.stop().unwrap();
}

/// Sends requests on one connection, each after the previous response. Returns the numbers of
/// served and of rejected requests.
fn asked(server: &Server, times: usize) -> (u64, u64) {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answers = BufReader::new(&stream);
    let (mut served, mut rejected) = (0, 0);
    for _ in 0..times {
        (&stream).write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut status = String::new();
        answers.read_line(&mut status).unwrap();
        match status.trim_end() {
            "HTTP/1.1 200 OK" => served += 1,
            "HTTP/1.1 503 Service Unavailable" => rejected += 1,
            other => panic!("{other:?}"),
        }
        let (mut length, mut has_retry_after) = (0, false);
        loop {
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("retry-after", "1")) => has_retry_after = true,
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(has_retry_after, status.contains("503"));
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
    (served, rejected)
}

/// Eight clients send to a core with capacity for one. Each request has one response, and the
/// server's counts agree. Each client waits for its response: requests sent at once would wait for
/// each other, which is no delay of the server.
#[test]
fn overload_is_answered_with_503() {
    let server = serve("codel", |_| {
        std::thread::sleep(Duration::from_millis(2));
        String::new()
    });
    let (served, rejected) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| asked(&server, 40))).collect();
        let results = clients.into_iter().map(|client| client.join().unwrap());
        results.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert!(served > 0 && rejected > 0 && served + rejected == 8 * 40, "{served} served, {rejected} refused");
    let counts = server.stop().unwrap();
    assert_eq!((counts.completed, counts.rejected), (served, rejected));
}
