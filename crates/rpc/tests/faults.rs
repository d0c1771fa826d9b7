//! Faults on the other side of a connection, one test each, over real sockets: the server goes on serving others,
//! nothing hangs, every credit comes back, and every request has one end. Elsewhere: a client that ignores its window
//! (`enforcement.rs`), no descriptors left (`descriptors.rs`), many clients (`crowd.rs`), an address in use and the
//! limit of connections (`server.rs`), random damage (`fuzz.rs`).

mod peer;

use leeward_control::units::Nanos;
use leeward_rpc::server::{Failed, Request};
use leeward_rpc::wire::{ErrorCode, Frame, Ping, Timestamp};
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use peer::{Peer, builder, bytes, call, eventually, is_settled, is_well, register, start};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A handler that takes a while, so that a client can be gone before its answer.
fn slow(_: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
    std::thread::sleep(Duration::from_millis(50));
    reply.push(1);
    Ok(())
}

/// Says `bytes` and hears the rest of the connection.
fn said(server: &leeward_rpc::server::Server, saying: &[u8]) -> Vec<String> {
    let mut peer = Peer::connect(server);
    peer.stream.write_all(saying).unwrap();
    std::iter::from_fn(|| peer.hear()).collect()
}

/// The server says this error last.
fn ends_with(heard: &[String], code: ErrorCode) {
    let last = heard.last().map_or("nothing", String::as_str);
    assert!(last.starts_with("Error") && last.contains(&format!("{code:?}")), "{code:?}: {heard:?}");
}

#[test]
fn a_client_that_resets_its_connection_mid_request() {
    let server = builder("breakwater", 2).start("127.0.0.1:0", slow).unwrap();
    for _ in 0..10 {
        let mut peer = Peer::registered(&server);
        peer.say(&call(1, b""));
        let received = server.counts().received;
        eventually(&server, |server| server.counts().received >= received);
        // Closing with a linger of zero resets.
        setsockopt(&peer.stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    }
    is_settled(&server);
    is_well(&server);
}

#[test]
fn a_client_that_ends_its_stream_mid_request() {
    let server = builder("breakwater", 2).start("127.0.0.1:0", slow).unwrap();
    for _ in 0..10 {
        let mut peer = Peer::registered(&server);
        peer.say(&call(1, b""));
    }
    is_settled(&server);
    is_well(&server);
}

#[test]
fn a_client_that_ends_together_with_its_last_bytes() {
    // While the only core is busy, the last bytes and the end arrive: one event for both.
    let server = builder("breakwater", 1).start("127.0.0.1:0", slow).unwrap();
    let mut busy = Peer::registered(&server);
    for round in 1..=3 {
        let mut peer = Peer::registered(&server);
        busy.say(&call(round, b""));
        eventually(&server, |server| server.counts().received == round);
        // Nothing that would be answered: an answer to a peer that has gone would be news of its own.
        peer.stream.write_all(&bytes(&call(1, b"half"))[..30]).unwrap();
        drop(peer);
        assert!(busy.answer().unwrap().starts_with("Response"));
    }
    drop(busy);
    is_settled(&server);
    is_well(&server);
}

#[test]
fn a_client_that_deregisters_and_closes_its_half_gets_what_it_is_owed() {
    let server = builder("breakwater", 1).start("127.0.0.1:0", slow).unwrap();
    let mut peer = Peer::connect(&server);
    peer.stream.write_all(&[bytes(&register()), bytes(&call(1, b"")), bytes(&Frame::Deregister)].concat()).unwrap();
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert!(peer.hear().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
    assert_eq!(peer.answer(), None);
    is_settled(&server);
    let counts = server.counts();
    assert_eq!((counts.completed, counts.abandoned), (1, 0), "{counts:?}");
}

#[test]
fn a_peer_that_has_gone_silently() {
    let server = builder("breakwater", 1)
        .patience(Nanos::from_secs(1), Nanos::from_secs(10))
        .start("127.0.0.1:0", peer::echo)
        .unwrap();
    let mut silent = Peer::registered(&server);
    let _unregistered = Peer::connect(&server);
    let mut chatty = Peer::registered(&server);
    assert!(silent.ask(1, b"x").starts_with("Response"));
    assert!(server.gauges().credits_issued.unwrap() > 0);
    let gone = AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let heard: Vec<String> = std::iter::from_fn(|| silent.hear()).collect();
            gone.store(true, Ordering::SeqCst);
            heard
        });
        // A sign of life is enough to stay. The other that is silent has been told so and does not end its half either.
        while !gone.load(Ordering::SeqCst) || server.counts().connections > 1 {
            chatty.say(&Frame::Ping(Ping { timestamp: Timestamp(3) }));
            std::thread::sleep(Duration::from_millis(20));
        }
        silent.join().unwrap()
    });
    ends_with(&heard, ErrorCode::Timeout);
    assert!(chatty.ask(1, b"x").starts_with("Response"));
    drop(chatty);
    is_settled(&server);
}

#[test]
fn senders_of_single_bytes_among_others() {
    let server = start("breakwater", 2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut peer = Peer::connect(&server);
                for byte in [bytes(&register()), bytes(&call(1, b"slow")), bytes(&Frame::Deregister)].concat() {
                    peer.stream.write_all(&[byte]).unwrap();
                }
                assert!(peer.hear().unwrap().starts_with("Welcome"));
                assert!(peer.answer().unwrap().starts_with("Response"));
                assert_eq!(peer.answer(), None);
            });
        }
        let mut other = Peer::registered(&server);
        for request in 1..=50 {
            assert!(other.ask(request, b"x").starts_with("Response"));
        }
    });
    is_settled(&server);
}

#[test]
fn a_client_that_never_reads_is_not_read_without_end_and_then_closed() {
    let server = builder("none", 1)
        .patience(Nanos::from_secs(300), Nanos::from_millis(300))
        .start("127.0.0.1:0", |_: &Request<'_>, reply: &mut Vec<u8>| {
            reply.resize(50_000, 1);
            Ok(())
        })
        .unwrap();
    let mut deaf = Peer::connect(&server);
    deaf.say(&register());
    deaf.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = 0;
    // Sooner or later writing fails: because the server does not read, and then because it has closed.
    while request < 1_000_000 {
        request += 1;
        if deaf.stream.write_all(&bytes(&call(request, b""))).is_err() {
            break;
        }
        if request % 200 == 0 {
            is_well(&server);
        }
    }
    eventually(&server, |server| server.counts().connections == 0);
    // 1 MiB may wait at the server, some MiB in the sockets' buffers, and the calls of one read come on top.
    let counts = server.counts();
    assert!(counts.received < 2_000, "{counts:?}");
    is_settled(&server);
}

#[test]
fn garbage() {
    let server = start("breakwater", 2);
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    for round in 0..200 {
        let mut garbage: Vec<u8> = Vec::new();
        for _ in 0..round % 40 + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            garbage.extend(random.to_le_bytes());
        }
        let mut peer = Peer::connect(&server);
        if round % 2 == 0 {
            peer.say(&register());
        }
        let _ = peer.stream.write_all(&garbage);
        let _ = peer.stream.shutdown(Shutdown::Write);
        // Whatever it says, it ends.
        while peer.hear().is_some() {}
    }
    is_settled(&server);
    is_well(&server);
}

#[test]
fn another_protocol() {
    let server = start("none", 1);
    ends_with(&said(&server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrorCode::Malformed);
    is_settled(&server);
}

#[test]
fn a_wrong_version() {
    let server = start("none", 1);
    let mut version = bytes(&register());
    version[2] = 9;
    ends_with(&said(&server, &version), ErrorCode::Version);
    is_settled(&server);
}

#[test]
fn an_oversized_length() {
    let server = start("none", 1);
    for length in [(1 << 20) + 1, 1 << 30, u32::MAX] {
        let mut oversized = bytes(&call(1, b""));
        oversized[4..8].copy_from_slice(&length.to_le_bytes());
        ends_with(&said(&server, &[bytes(&register()), oversized].concat()), ErrorCode::TooLarge);
    }
    is_settled(&server);
}

#[test]
fn a_request_id_in_use() {
    let server = builder("none", 1).start("127.0.0.1:0", slow).unwrap();
    let twice = [bytes(&register()), bytes(&call(1, b"a")), bytes(&call(1, b"a"))].concat();
    let heard = said(&server, &twice);
    ends_with(&heard, ErrorCode::DuplicateRequest);
    // The error is the last frame, so the first call's answer is not sent after it.
    assert!(!heard.iter().any(|frame| frame.starts_with("Response")), "{heard:?}");
    is_settled(&server);
    assert_eq!(server.counts().abandoned, 1);
}

#[test]
fn a_stop_while_clients_do_not_stop() {
    for controller in ["none", "breakwater"] {
        let server = builder(controller, 2)
            .start("127.0.0.1:0", |_: &Request<'_>, _: &mut Vec<u8>| {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            })
            .unwrap();
        let peers: Vec<Peer> = (0..3).map(|_| Peer::registered(&server)).collect();
        let going_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for mut peer in peers {
                let going_on = &going_on;
                scope.spawn(move || {
                    let mut reader = peer.stream.try_clone().unwrap();
                    let reading = std::thread::spawn(move || {
                        let mut sink = [0; 65_536];
                        while reader.read(&mut sink).is_ok_and(|count| count > 0) {}
                    });
                    let pings = bytes(&Frame::Ping(Ping { timestamp: Timestamp(1) })).repeat(50);
                    let mut request = 0;
                    while going_on.load(Ordering::SeqCst) {
                        request += 1;
                        let all = [pings.clone(), bytes(&call(request, b""))].concat();
                        if peer.stream.write_all(&all).is_err() {
                            break;
                        }
                    }
                    let _ = peer.stream.shutdown(Shutdown::Both);
                    reading.join().unwrap();
                });
            }
            eventually(&server, |server| server.counts().received > 10);
            // Comes back although there is always something to read.
            server.stop().unwrap();
            going_on.store(false, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_client_that_always_has_more_to_say_keeps_nobody_from_being_heard() {
    let server = start("breakwater", 1);
    let mut flooder = Peer::registered(&server);
    // A large call first: afterwards as much is read at once.
    flooder.say(&call(1, &vec![0; 1 << 20]));
    assert!(flooder.answer().unwrap().starts_with("Response"));
    let going_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let mut reader = flooder.stream.try_clone().unwrap();
        scope.spawn(move || {
            let mut sink = vec![0; 1 << 20];
            while reader.read(&mut sink).is_ok_and(|count| count > 0) {}
        });
        scope.spawn(|| {
            let pings = bytes(&Frame::Ping(Ping { timestamp: Timestamp(1) })).repeat(20_000);
            while going_on.load(Ordering::SeqCst) {
                flooder.stream.write_all(&pings).unwrap();
            }
            flooder.stream.shutdown(Shutdown::Both).unwrap();
        });
        let mut other = Peer::registered(&server);
        for request in 1..=300 {
            assert!(other.ask(request, b"x").starts_with("Response"));
        }
        going_on.store(false, Ordering::SeqCst);
    });
    is_settled(&server);
}

#[test]
fn an_error_is_heard_by_a_client_that_goes_on_talking() {
    let server = start("none", 1);
    for _ in 0..20 {
        let mut peer = Peer::connect(&server);
        let mut saying = [bytes(&register()), b"this is no frame".to_vec()].concat();
        // More than one read: closing with this unread would reset the connection.
        saying.resize(200_000, 7);
        peer.stream.write_all(&saying).unwrap();
        assert!(peer.hear().unwrap().starts_with("Welcome"));
        assert!(peer.hear().unwrap().contains("Malformed"));
        // The server's half is closed, and what it is told is thrown away.
        peer.stream.write_all(&saying).unwrap();
        assert_eq!(peer.stream.read(&mut [0; 16]).unwrap(), 0);
    }
    is_settled(&server);
}

#[test]
fn clients_that_do_not_end_after_an_error_are_ended() {
    let server = start("breakwater", 1);
    let mut peers: Vec<Peer> = (0..300).map(|_| Peer::registered(&server)).collect();
    for peer in &mut peers {
        peer.say(&register());
    }
    for peer in &mut peers {
        assert!(peer.answer().unwrap().contains("Unexpected"));
    }
    is_settled(&server);
    drop(peers);
}

#[test]
fn a_frame_that_takes_too_long() {
    let server = builder("breakwater", 1)
        .patience(Nanos::from_millis(300), Nanos::from_secs(10))
        .start("127.0.0.1:0", peer::echo)
        .unwrap();
    let mut slow = Peer::registered(&server);
    let frame = bytes(&call(1, &[7; 100_000]));
    let mut stream = slow.stream.try_clone().unwrap();
    // Never silent, and never done.
    let slowly = std::thread::spawn(move || {
        for byte in frame.chunks(1) {
            if stream.write_all(byte).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let heard: Vec<String> = std::iter::from_fn(|| slow.hear()).collect();
    ends_with(&heard, ErrorCode::Timeout);
    slow.stream.shutdown(Shutdown::Both).unwrap();
    slowly.join().unwrap();
    is_settled(&server);
}

#[test]
fn a_client_that_resets_its_connection_while_it_is_not_read() {
    // Nothing is ever answered, so the connection is not read any more, and its end not either.
    let never = |_| std::future::pending();
    let server = builder("none", 1).start_async("127.0.0.1:0", never).unwrap();
    let mut peer = Peer::registered(&server);
    for request in 1..=300 {
        peer.say(&call(request, b""));
    }
    eventually(&server, |server| server.counts().received == 256);
    setsockopt(&peer.stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    drop(peer);
    is_settled(&server);
    assert_eq!(server.counts().abandoned, 256);
}
