//! Stalled handshakes: the server ends them, and they keep no other client out.

use crate::certificates::Authority;
use crate::peers::{ask, builder, client, refusals, start};
use leeward_core::units::Nanos;
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn silent_handshakes_time_out_and_block_no_other_client() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)).handshake_limit(Nanos::from_secs(1)));
    let tls = authority.client(None);
    let early = client(&server, Some(tls.clone()));
    assert_eq!(ask(&early, b"early").unwrap(), b"early");
    // More than there are slots for, some of them within a hello.
    let mut stalled: Vec<_> = (0..400).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    stalled.iter_mut().step_by(2).for_each(|stream| stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap());
    // Slots are taken two at a time.
    assert!(server.statistics().tls.unwrap().waiting <= 257);
    assert_eq!(ask(&early, b"still there").unwrap(), b"still there");
    let late = client(&server, Some(tls));
    assert_eq!(ask(&late, b"late").unwrap(), b"late");
    // Connections that waited in the kernel's queue for the whole time limit never got a slot.
    until("all are refused", || refusals(&server, "stalled") + refusals(&server, "waited") == 400);
    until("no handshake waits", || server.statistics().tls.unwrap().waiting == 0);
    for stream in &mut stalled {
        // Closed, or reset.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.stop().unwrap();
}

#[test]
fn a_full_server_does_no_handshake() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)).connection_limit(1));
    let tls = authority.client(None);
    let first = client(&server, Some(tls.clone()));
    assert_eq!(ask(&first, b"first").unwrap(), b"first");
    let message = crate::peers::refused(&server, Some(tls));
    assert!(message.contains("within the TLS handshake") || message.contains("reset"), "{message}");
    until("a handshake is refused", || refusals(&server, "full") > 0);
    assert_eq!(server.statistics().tls.unwrap().done, 1);
    assert_eq!(ask(&first, b"still there").unwrap(), b"still there");
    server.stop().unwrap();
}

#[test]
fn a_server_that_stops_waits_for_no_handshake() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)));
    let _stalled: Vec<_> = (0..10).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    until("ten handshakes wait", || server.statistics().tls.unwrap().waiting == 10);
    server.stop().unwrap();
}

/// A byte now and then is no progress: trickling clients free their slots like silent ones.
#[test]
fn trickling_handshakes_block_no_other_client() {
    let authority = Authority::new();
    // No handshake reaches its time limit.
    let server = start(builder(authority.server(None)).handshake_limit(Nanos::from_secs(600)));
    let (over, address) = (AtomicBool::new(false), server.address());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut crowd: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
            crowd.iter_mut().for_each(|stream| stream.write_all(&[0x16, 3, 1, 0x3F, 0xFF, 1, 0, 0x3F]).unwrap());
            while !over.load(Ordering::SeqCst) {
                // The server closes most of them after a while.
                crowd.iter_mut().for_each(|stream| _ = stream.write_all(&[0]));
                // Slow, but never silent.
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        until("256 handshakes wait", || server.statistics().tls.unwrap().waiting >= 256);
        let late = client(&server, Some(authority.client(None)));
        let answer = ask(&late, b"late");
        over.store(true, Ordering::SeqCst);
        assert_eq!(answer.unwrap(), b"late");
    });
    server.stop().unwrap();
}
