//! The example `http` from outside, over real sockets: what `curl` would see, and what bad clients can do.

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

/// Says `bytes`, ends its half, and hears all.
fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A server that has hung up already may refuse what is left.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

/// Status codes of all answers.
fn statuses(heard: &str) -> Vec<u16> {
    heard.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect()
}

/// Each stream is followed by one more request: it is answered only where the connection goes on.
#[test]
fn requests_are_framed_by_the_rules() {
    let server = serve("none", |_| String::new());
    for (bytes, expected, goes_on) in requests::rows() {
        let last = "GET /last HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let heard = exchange(&server, &[&bytes, last.as_bytes()].concat());
        let expected = if goes_on { [&expected[..], &[404]].concat() } else { expected };
        assert_eq!(statuses(&heard), expected, "{:?}\n{heard}", String::from_utf8_lossy(&bytes));
        let answers: Vec<&str> = heard.split("HTTP/1.1 ").skip(1).collect();
        let at_end = if goes_on { "keep-alive" } else { "close" };
        assert!(answers[answers.len() - 1].contains(&format!("connection: {at_end}\r\n")), "{heard}");
        assert!(answers.iter().all(|answer| answer.contains("allow: GET\r\n") == answer.starts_with("405")), "{heard}");
    }
    assert_eq!(server.stop().unwrap().abandoned, 0);
}

#[test]
fn routes_are_answered_and_offences_end_the_connection() {
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
    for (said, codes) in cases {
        let heard = exchange(&server, said.as_bytes());
        assert_eq!(statuses(&heard), codes, "{heard}");
    }
    assert!(exchange(&server, get("/hello?a?b", "").as_bytes()).ends_with("\r\n\r\nhello a?b"));
    let heard = exchange(&server, b"GET /statistics HTTP/1.0\r\n\r\n");
    let body = heard.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(Statistics::parse(body.as_bytes()).unwrap().completed, 6, "{body}");
    assert_eq!(server.stop().unwrap().abandoned, 0);
}

/// Clients of other protocols get an answer of HTTP's and an end; nothing of theirs is executed.
#[test]
fn clients_of_other_protocols_are_refused() {
    let server = serve("none", |_| String::new());
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "HTTP/1") {
        let codes = statuses(&exchange(&server, bytes));
        assert!(matches!(codes[..], [400 | 505]), "{name}: {codes:?}");
    }
    // What follows a request is another one, and not read as anything else.
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name == "HTTP/1") {
        let heard = exchange(&server, bytes);
        let codes = statuses(&heard);
        assert!(!heard.contains("STORED") && *codes.last().unwrap() >= 400, "{name}: {codes:?}");
    }
    assert_eq!((server.counts().received, server.counts().abandoned), (0, 0));
    server.stop().unwrap();
}

/// Asks again and again on one connection, each time after the answer. How often it was served, and how often refused.
fn asked(server: &Server, times: usize) -> (u64, u64) {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answers = BufReader::new(&stream);
    let (mut served, mut refused) = (0, 0);
    for _ in 0..times {
        (&stream).write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut status = String::new();
        answers.read_line(&mut status).unwrap();
        match status.trim_end() {
            "HTTP/1.1 200 OK" => served += 1,
            "HTTP/1.1 503 Service Unavailable" => refused += 1,
            other => panic!("{other:?}"),
        }
        let (mut length, mut comes_back) = (0, false);
        loop {
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("retry-after", "1")) => comes_back = true,
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(comes_back, status.contains("503"));
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
    (served, refused)
}

/// Eight clients ask a core that has work for one: each request has one answer, and the books say the same. Each asks after
/// its last answer, for what it sent at once would wait for itself, which is no delay of the server's.
#[test]
fn overload_is_told_as_503() {
    let server = serve("codel", |_| {
        std::thread::sleep(Duration::from_millis(2));
        String::new()
    });
    let (served, refused) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| asked(&server, 40))).collect();
        let heard = clients.into_iter().map(|client| client.join().unwrap());
        heard.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert!(served > 0 && refused > 0 && served + refused == 8 * 40, "{served} served, {refused} refused");
    let counts = server.stop().unwrap();
    assert_eq!((counts.completed, counts.rejected), (served, refused));
}
