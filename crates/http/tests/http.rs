//! The HTTP protocol from outside, over real sockets: what `curl` would see, and what bad clients can do.

use leeward_control::registry::Registry;
use leeward_http::Http;
use leeward_port::{Server, Statistics};
use leeward_runtime::Idle;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn serve(controller: &str, handler: fn(&str) -> String) -> Server {
    let algorithm = Registry::builtin().find(controller).unwrap().clone();
    let builder = Http::default().idle(Idle::Block).admission(&algorithm, algorithm.params(&[]).unwrap());
    builder.start("127.0.0.1:0", "/hello", handler).unwrap()
}

/// Says `bytes`, ends its half, and hears all.
fn told(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A server that has hung up already may refuse what is left.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

#[test]
fn routes_are_answered_and_offences_end_the_connection() {
    let server = serve("none", |query| if query == "panic" { panic!("as asked") } else { format!("hello {query}") });
    let long = format!("GET /hello HTTP/1.1\r\nx: {}", "y".repeat(20_000));
    let cases: [(&str, &[&str]); 7] = [
        ("GET /hello?you HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", &["200", "200", "404"]),
        ("PUT /hello HTTP/1.1\r\nhost: a\r\n\r\nGET /hello HTTP/1.0\r\n\r\n", &["405", "200"]),
        ("GET /hello?panic HTTP/1.1\r\n\r\nGET /hello HTTP/1.1\r\n\r\n", &["500", "200"]),
        ("GET /hello HTTP/1.1\r\nconnection: close\r\n\r\nGET /hello HTTP/1.1\r\n\r\n", &["200"]),
        ("GET /hello HTTP/1.1\r\ncontent-length: 5\r\n\r\n12345", &["413"]),
        ("\x16\x03\x01 what\r\n\r\n", &["400"]),
        (&long, &["431"]),
    ];
    for (said, codes) in cases {
        let heard = told(&server, said.as_bytes());
        let found: Vec<&str> = heard.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
        assert_eq!(found, codes, "{heard}");
    }
    let heard = told(&server, b"GET /statistics HTTP/1.0\r\n\r\n");
    let body = heard.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(Statistics::parse(body.as_bytes()).unwrap().completed, 5, "{body}");
    assert_eq!(server.stop().unwrap().abandoned, 0);
}

/// Asks again and again on one connection, each time after the answer. How often it was served, and how often refused.
fn asked(server: &Server, times: usize) -> (u64, u64) {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answers = BufReader::new(&stream);
    let (mut served, mut refused) = (0, 0);
    for _ in 0..times {
        (&stream).write_all(b"GET /hello HTTP/1.1\r\n\r\n").unwrap();
        let mut status = String::new();
        answers.read_line(&mut status).unwrap();
        match status.trim_end() {
            "HTTP/1.1 200 OK" => served += 1,
            "HTTP/1.1 503 Service Unavailable" => refused += 1,
            other => panic!("{other:?}"),
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
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
    assert_eq!((counts.completed, counts.dropped), (served, refused));
}
