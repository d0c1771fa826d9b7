//! The HTTP protocol from outside, over real sockets: what `curl` would see, and what bad clients can do.

use leeward_control::registry::Registry;
use leeward_control::units::Nanos;
use leeward_http::Http;
use leeward_port::{Server, Statistics};
use leeward_runtime::Idle;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn builder() -> Http {
    Http::builder().idle(Idle::Adaptive(Nanos::from_micros(20))).cores(2)
}

fn serve() -> Server {
    builder().start("127.0.0.1:0", "/hello", |query| format!("hello {query}")).unwrap()
}

/// Says `bytes`, ends its half, and hears all.
fn told(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A server that has hung up already may refuse what is left.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

#[test]
fn routes_are_answered_in_order_and_counted() {
    let server = serve();
    let heard = told(
        &server,
        b"GET /hello?you HTTP/1.1\r\nhost: a\r\n\r\nGET /healthz HTTP/1.1\r\n\r\nGET /moon HTTP/1.1\r\n\r\nPUT /hello HTTP/1.1\r\n\r\n",
    );
    let status = |line: &&str| line.starts_with("HTTP/1.1");
    let lines: Vec<&str> = heard.lines().filter(status).collect();
    assert_eq!(lines.len(), 4, "{heard}");
    assert!(heard.contains("\r\n\r\nhello you"), "{heard}");
    for (line, code) in lines.iter().zip(["200", "200", "404", "405"]) {
        assert!(line.contains(code), "{heard}");
    }
    let heard = told(&server, b"GET /statistics HTTP/1.0\r\n\r\n");
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(Statistics::parse(body.as_bytes()).unwrap().completed, 1);
    let counts = server.stop().unwrap();
    assert_eq!((counts.received, counts.completed, counts.abandoned), (1, 1, 0));
}

#[test]
fn offences_end_the_connection_with_a_status() {
    let server = serve();
    let long = format!("GET /hello HTTP/1.1\r\nx: {}", "y".repeat(20_000));
    let cases: [(&[u8], &str); 4] = [
        (b"\x16\x03\x01\x02\x00 what\r\n\r\n", "400"),
        (long.as_bytes(), "431"),
        (b"GET /hello HTTP/1.1\r\ncontent-length: 5\r\n\r\n12345", "413"),
        (b"GET /hello HTTP/1.1\r\nconnection: close\r\n\r\nGET /hello HTTP/1.1\r\n\r\n", "200"),
    ];
    for (bytes, code) in cases {
        let heard = told(&server, bytes);
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{heard}");
        assert!(heard.starts_with(&format!("HTTP/1.1 {code}")), "{heard}");
    }
    server.stop().unwrap();
}

/// Half of the requests come while the only core is busy, for longer than the controller allows.
#[test]
fn overload_is_told_as_503() {
    let registry = Registry::builtin();
    let seda = registry.find("codel").unwrap();
    let params = seda.params(&[]).unwrap();
    let handler = |_: &str| {
        std::thread::sleep(Duration::from_millis(5));
        String::new()
    };
    let server = builder()
        .cores(1)
        .admission(seda, params)
        .objective(Nanos::from_micros(10), Nanos::from_micros(200))
        .start("127.0.0.1:0", "/", handler)
        .unwrap();
    let ask = || told(&server, "GET / HTTP/1.1\r\n\r\n".repeat(40).as_bytes());
    let heard = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<String>()
    });
    let (served, refused) = (heard.matches("HTTP/1.1 200").count(), heard.matches("HTTP/1.1 503").count());
    assert_eq!(served + refused, 8 * 40, "each request has one answer");
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    let counts = server.stop().unwrap();
    assert_eq!((counts.completed, counts.dropped), (served as u64, refused as u64));
}
