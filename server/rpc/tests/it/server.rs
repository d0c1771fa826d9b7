//! The server over real sockets: responses, rejections, and misbehaving peers. No test asserts a
//! time; time limits are long, and only turn a hang into a failure.

use crate::peer::{Peer, call, echo, encode, eventually, is_well, register, start};
use crate::serve::Serve;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_rpc::server::{Request, Server};
use leeward_rpc::wire::{Call, CreditId, ErrorCode, FailureCode, Frame};
use leeward_runtime::IdlePolicy;
use leeward_testkit::greetings::GREETINGS;
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn every_controller_answers() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        for cores in [1, 3] {
            let server = start(algorithm.name, cores);
            let mut peers: Vec<Peer> = (0..5).map(|_| Peer::registered(&server)).collect();
            for request in 1..=20 {
                for peer in &mut peers {
                    let answer = peer.ask(request, b"hello");
                    assert!(answer.starts_with("Response") && answer.contains("104, 101"), "{answer}");
                }
            }
            let counts = server.counts();
            assert_eq!((counts.received, counts.completed, counts.rejected), (100, 100, 0), "{}", algorithm.name);
            server.stop().unwrap();
        }
    }
}

#[test]
fn one_call_may_be_sent_with_the_registration() {
    let server = start("breakwater", 1);
    let mut peer = Peer::connect(&server);
    peer.stream.write_all(&[encode(&register()), encode(&call(1, b"x"))].concat()).unwrap();
    assert!(peer.receive().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
}

#[test]
fn failures_end_one_request_only() {
    let server = start("none", 1);
    let mut peer = Peer::registered(&server);
    for (payload, code) in [(b"no".as_slice(), FailureCode::Failed), (b"panic", FailureCode::Failed)] {
        peer.send(&call(1, payload));
        let answer = peer.answer().unwrap();
        assert!(answer.starts_with("Failure") && answer.contains(&format!("{code:?}")), "{answer}");
    }
    let statistics = server.statistics();
    assert_eq!(
        (statistics.completed, statistics.failed, statistics.in_time),
        (2, 2, 0),
        "a failure is no goodput, however fast it comes"
    );
    is_well(&server);
}

#[test]
fn single_bytes_are_reassembled_into_frames() {
    let server = start("breakwater", 1);
    let mut peer = Peer::connect(&server);
    for byte in [encode(&register()), encode(&call(1, b"slow"))].concat() {
        peer.stream.write_all(&[byte]).unwrap();
    }
    assert!(peer.receive().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
}

#[test]
fn garbage_ends_the_connection_with_the_reason() {
    let server = start("breakwater", 1);
    let mut version = encode(&register());
    version[2] = 9;
    let mut oversized = encode(&call(1, b""));
    oversized[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    // A Credit, which only a server sends.
    let mut direction = encode(&register());
    direction[3] = 7;
    for (bytes, expected) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), ErrorCode::Malformed),
        (version, ErrorCode::Version),
        (direction, ErrorCode::Unexpected),
        (encode(&call(1, b"unregistered")), ErrorCode::Unexpected),
        ([encode(&register()), oversized].concat(), ErrorCode::TooLarge),
        ([encode(&register()), encode(&register())].concat(), ErrorCode::Unexpected),
    ] {
        let mut peer = Peer::connect(&server);
        peer.stream.write_all(&bytes).unwrap();
        let received: Vec<String> = std::iter::from_fn(|| peer.receive()).collect();
        let last = received.last().unwrap();
        assert!(last.starts_with("Error") && last.contains(&format!("{expected:?}")), "{expected:?}: {received:?}");
    }
    eventually(&server, |server| server.counts().connections == 0 && server.gauges().credits_issued == Some(0));
    is_well(&server);
}

/// A client of another protocol gets an error that names its protocol, even if it sends little and
/// waits. Nothing is executed.
#[test]
fn clients_of_other_protocols_get_an_error_that_names_their_protocol() {
    let server = start("breakwater", 1);
    let short: [(&str, &[u8]); 2] = [("memcached's text protocol", b"mn\r\n"), ("the protocol of Redis", b"*1")];
    for (name, bytes) in GREETINGS.into_iter().chain(short).filter(|(name, _)| *name != "Leeward's protocol") {
        let mut peer = Peer::connect(&server);
        peer.stream.write_all(bytes).unwrap();
        let received: Vec<String> = std::iter::from_fn(|| peer.receive()).collect();
        let last = received.last().unwrap();
        assert!(last.starts_with("Error") && last.contains("Malformed") && last.contains(name), "{name}: {received:?}");
    }
    assert_eq!(server.counts().received, 0);
    is_well(&server);
}

/// The server sends grant ids for the efficiency signal, and calls may return them. A wrong id does
/// no harm.
#[test]
fn credits_have_ids_if_the_controller_measures_efficiency() {
    for (controller, named) in [("breakwater", false), ("efficiency", true), ("auto", true)] {
        let server = start(controller, 1);
        let mut peer = Peer::registered(&server);
        for (request, credit) in [(1, 0), (2, 1), (3, u64::MAX)] {
            while !peer.may_call() {
                peer.receive().unwrap();
            }
            let Frame::Call(plain) = call(request, b"x") else { unreachable!("a call is a call") };
            peer.send(&Frame::Call(Call { credit: CreditId(credit), ..plain }));
            let answer = peer.answer().unwrap();
            assert!(answer.starts_with("Response"), "{controller}: {answer}");
            assert_eq!(!answer.contains("credit: CreditId(0)"), named, "{controller}: {answer}");
        }
        drop(peer);
        eventually(&server, |server| server.gauges().credits_issued == Some(0));
    }
}

#[test]
fn every_way_to_disconnect_returns_the_credit() {
    let server = start("breakwater", 2);
    let mut peers: Vec<Peer> = (0..40).map(|_| Peer::registered(&server)).collect();
    for (index, peer) in peers.iter_mut().enumerate() {
        peer.send(&call(1, b"x"));
        match index % 4 {
            0 => assert!(peer.answer().is_some()),
            1 => peer.stream.shutdown(Shutdown::Write).unwrap(),
            2 => peer.send(&Frame::Deregister),
            // Ends in the middle of a frame.
            _ => peer.stream.write_all(&encode(&call(2, b"half"))[..30]).unwrap(),
        }
    }
    drop(peers);
    eventually(&server, |server| server.counts().connections == 0);
    let gauges = server.gauges();
    assert_eq!((gauges.credits_issued, gauges.sessions), (Some(0), Some(0)));
    let counts = server.counts();
    assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned, "{counts:?}");
    is_well(&server);
}

#[test]
fn a_peer_that_never_reads_does_not_affect_others() {
    let server = Server::builder()
        .idle(IdlePolicy::Block)
        .timeouts(Nanos::from_secs(300), Nanos::from_millis(200))
        .serve(|_: &Request<'_>, reply: &mut Vec<u8>| {
            reply.resize(100_000, 1);
            Ok(())
        })
        .unwrap();
    let mut unreading = Peer::registered(&server);
    unreading.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for request in 1..=2_000 {
        // The server stops reading the connection, and then closes it.
        if unreading.stream.write_all(&encode(&call(request, b""))).is_err() {
            break;
        }
    }
    is_well(&server);
    eventually(&server, |server| server.counts().connections <= 1);
    is_well(&server);
}

#[test]
fn connections_over_the_limit_get_an_error() {
    let server = Server::builder().idle(IdlePolicy::Block).connection_limit(2).serve(echo).unwrap();
    let _first = Peer::registered(&server);
    let _second = Peer::registered(&server);
    let mut third = Peer::connect(&server);
    let received = third.receive().unwrap();
    assert!(received.contains("ConnectionLimit"), "{received}");
    assert_eq!(third.receive(), None);
}

#[test]
fn a_stop_answers_pending_calls_and_announces_the_shutdown() {
    let server = Server::builder()
        .idle(IdlePolicy::Block)
        .watched(true)
        .serve(|_: &Request<'_>, reply: &mut Vec<u8>| {
            // The stop comes meanwhile.
            std::thread::sleep(Duration::from_millis(200));
            reply.push(1);
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::registered(&server);
    peer.send(&call(1, b""));
    eventually(&server, |server| server.counts().received == 1);
    let source = server.source().unwrap();
    assert!(!source.snapshot().is_stopping);
    server.stop().unwrap();
    assert!(source.snapshot().is_stopping, "observers outlive the server");
    assert!(peer.answer().unwrap().starts_with("Response"));
    assert!(peer.answer().unwrap().contains("ShuttingDown"));
    assert_eq!(peer.answer(), None);
}

#[test]
fn an_address_in_use_is_an_error() {
    let server = start("none", 1);
    let again = Server::builder().start(&server.address().to_string(), echo);
    let error = again.err().unwrap().to_string();
    assert!(error.contains(&server.address().to_string()), "{error}");
    for nonsense in ["", "nowhere", "127.0.0.1", "127.0.0.1:99999"] {
        assert!(Server::builder().start(nonsense, echo).is_err(), "{nonsense}");
    }
}

#[test]
fn every_rejection_is_answered() {
    let algorithm = leeward_controllers::builtin().find("gradient").unwrap().clone();
    let params = algorithm.params(&[("min_limit", RawParam::Integer(1)), ("max_limit", RawParam::Integer(1))]).unwrap();
    let server = Server::builder()
        .admission(&algorithm, params)
        .idle(IdlePolicy::Block)
        .serve(|_: &Request<'_>, _: &mut Vec<u8>| {
            // The rest of the burst arrives meanwhile.
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::registered(&server);
    let burst: Vec<u8> = (1..=30).flat_map(|request| encode(&call(request, b""))).collect();
    peer.stream.write_all(&burst).unwrap();
    let answers: Vec<String> = (0..30).filter_map(|_| peer.answer()).collect();
    let dropped = answers.iter().filter(|answer| answer.starts_with("Drop") && answer.contains("Concurrency")).count();
    assert!(dropped > 0 && answers.iter().any(|answer| answer.starts_with("Response")), "{answers:?}");
    assert_eq!(server.counts().rejected, dropped as u64);
}

#[test]
fn sleeping_cores_still_grant_credits() {
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let server = Server::builder().admission(&algorithm, params).idle(IdlePolicy::Block).serve(echo).unwrap();
    // More sessions than the pool's initial size, without any message from them.
    let mut peers: Vec<Peer> = (0..30).map(|_| Peer::registered(&server)).collect();
    for peer in &mut peers {
        assert!(peer.receive().unwrap().starts_with("Credit"));
    }
}
