//! Clients that misuse TLS: plain requests, garbage, handshakes that never end, clients that read
//! nothing. Does not contain clients that behave.

use crate::certificates::{Certificates, handshakes, transport_metric};
use crate::harness::{Backend, Wire, address, connect, settle, start};
use leeward_observe::Source;
use leeward_testkit::random::Random;
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio_rustls::rustls::ClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;

/// The first bytes of a client.
fn hello(certificates: &Certificates) -> Vec<u8> {
    let config = Arc::new(certificates.client().config);
    let mut client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Reads until the proxy closes, whatever it says; a reset is an end, too.
fn drain(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    stream.set_read_timeout(Some(leeward_testkit::wait::LIVENESS)).unwrap();
    loop {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it does not end"),
            _ => return bytes,
        }
    }
}

#[test]
fn a_request_without_tls_is_told_so() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nabcde");
    let answer = client.answer();
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (400, Some("bad-request".into())));
    assert!(answer.text().contains("https"), "{}", answer.text());
    client.closed();
    for garbage in [&b"\0\0\0\0"[..], b"\x15\x03\x01\x00\x02\x02\x28", b"\xff", b"ssh-2.0\r\n"] {
        let mut client = connect(&proxy);
        client.send(garbage);
        client.closed();
    }
    until("all are counted", || handshakes(&proxy, "plaintext") == 5);
    assert!(backend.requests().is_empty());
}

#[test]
fn handshakes_that_are_cut_or_garbage_end() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let hello = hello(&certificates);
    let mut random = Random::new(1);
    let mut count = 0;
    for cut in (1..hello.len()).step_by(7) {
        let mut stream = TcpStream::connect(address(&proxy)).unwrap();
        stream.write_all(&hello[..cut]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        drain(&stream);
        count += 1;
    }
    until("they are counted", || handshakes(&proxy, "closed") == count);
    for _ in 0..200 {
        let mut bytes = hello.clone();
        for _ in 0..1 + random.below(8) {
            let at = 1 + random.below(bytes.len() - 1);
            bytes[at] = random.below(256) as u8;
        }
        if random.below(2) == 0 {
            bytes.extend((0..300).map(|_| random.below(256) as u8));
        }
        let mut stream = TcpStream::connect(address(&proxy)).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        drain(&stream);
    }
    // A record without an end, and a great length.
    let mut stream = TcpStream::connect(address(&proxy)).unwrap();
    let _ = stream.write_all(&[0x16, 3, 1, 0xff, 0xff]);
    let _ = stream.write_all(&[1; 70_000]);
    drain(&stream);
    until("all end", || transport_metric(&proxy, "tls_handshakes_in_progress") == 0);
    assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
}

#[test]
fn half_open_handshakes_keep_nobody_out() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let hello = hello(&certificates);
    let halves: Vec<_> = (0..200)
        .map(|at| {
            let mut stream = TcpStream::connect(address(&proxy)).unwrap();
            stream.write_all(&hello[..[1, 5, 60, hello.len()][at % 4]]).unwrap();
            stream
        })
        .collect();
    until("all have begun", || transport_metric(&proxy, "tls_handshakes_in_progress") == 200);
    for _ in 0..5 {
        assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
    }
    assert_eq!(transport_metric(&proxy, "tls_handshakes_in_progress"), 200);
    drop(halves);
    until("all end", || transport_metric(&proxy, "tls_handshakes_in_progress") == 0);
}

#[test]
fn handshakes_in_progress_are_bounded_and_the_oldest_end() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let halves: Vec<_> = (0..1_100)
        .map(|at| {
            let mut stream = TcpStream::connect(address(&proxy)).unwrap();
            stream.write_all(&[0x16]).unwrap();
            if at % 100 == 0 {
                assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
            }
            stream
        })
        .collect();
    until("there are as many as there may be", || transport_metric(&proxy, "tls_handshakes_in_progress") == 1_024);
    until("the others were ended", || handshakes(&proxy, "crowded") >= 76);
    assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
    // The oldest ones have ended.
    assert!(drain(&halves[0]).is_empty());
}

#[test]
fn slow_handshakes_end_in_time() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let times = "[timeouts]\nclient = \"300ms\"\n";
    let proxy = start(&[backend.address], &certificates.section("server", times));
    let silent = TcpStream::connect(address(&proxy)).unwrap();
    let mut begun = TcpStream::connect(address(&proxy)).unwrap();
    begun.write_all(&hello(&certificates)).unwrap();
    let slow = TcpStream::connect(address(&proxy)).unwrap();
    let (mut trickle, bytes) = (slow.try_clone().unwrap(), hello(&certificates));
    thread::spawn(move || {
        for byte in bytes {
            if trickle.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    for stream in [silent, begun, slow] {
        drain(&stream);
    }
    until("all are counted", || handshakes(&proxy, "timeout") == 3);
}

#[test]
fn silent_connections_make_room() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &format!("connections = 4\n{}", certificates.section("server", "")));
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(address(&proxy)).unwrap()).collect();
    let begun: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(address(&proxy)).unwrap();
            let _ = stream.write_all(&[0x16, 3, 1]);
            stream
        })
        .collect();
    assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
    drop((silent, begun));
}

#[test]
fn a_client_that_reads_nothing_is_ended() {
    let certificates = Certificates::new();
    let body = "x".repeat(16 << 20);
    let backend = Backend::start(move |exchange| exchange.ok(&body));
    let times = "[timeouts]\nclient-idle = \"200ms\"\n";
    let proxy = start(&[backend.address], &certificates.section("server", times));
    let mut socket = TcpStream::connect(address(&proxy)).unwrap();
    let config = Arc::new(certificates.client().config);
    let mut client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    client.writer().write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    while client.wants_write() {
        client.write_tls(&mut socket).unwrap();
    }
    until("the request comes", || proxy.admission().snapshot().arrived == 1);
    assert_eq!(settle(&proxy).abandoned, 1);
    assert!(drain(&socket).len() < 16 << 20);
}

#[test]
fn an_end_without_notice_is_an_end() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    for _ in 0..20 {
        let (mut client, _) = certificates.client().connect(&proxy).expect("a handshake");
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        drop(client);
    }
    // Garbage behind a handshake.
    let mut socket = TcpStream::connect(address(&proxy)).unwrap();
    let config = Arc::new(certificates.client().config);
    let mut client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    socket.write_all(b"\x17\x03\x03\x00\x20garbage that is no record of this session").unwrap();
    drain(&socket);
    settle(&proxy);
    let mut wire: Wire = certificates.client().connect(&proxy).expect("a handshake").0;
    assert_eq!(wire.get("/b").text(), "/b");
}
