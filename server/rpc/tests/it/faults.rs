//! Faults that only sockets and their engine bring to a connection, one test each: the server
//! continues to serve others, nothing hangs, every credit returns, and every request has one
//! outcome.
//!
//! Checked in virtual time (server/session/tests): forbidden messages of clients, and every way to
//! cut them. Checked elsewhere: no free descriptors (`descriptors.rs`), many clients (`crowd.rs`),
//! an address in use and the limit of connections (`server`).

use crate::peer::{self, Peer, builder, call, encode, eventually, is_settled, is_well, register, start};
use crate::serve::Serve;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_rpc::server::{HandlerError, Request, Server};
use leeward_rpc::wire::{ErrorCode, Frame, Ping, Timestamp};
use leeward_testkit::wait::until;
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A slow handler, so that a client can leave before its response.
fn slow(_: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    std::thread::sleep(Duration::from_millis(50));
    reply.push(1);
    Ok(())
}

/// Checks that the server's last message is this error.
fn ends_with(received: &[String], code: ErrorCode) {
    let last = received.last().map_or("nothing", String::as_str);
    assert!(last.starts_with("Error") && last.contains(&format!("{code:?}")), "{code:?}: {received:?}");
}

#[test]
fn a_client_that_resets_its_connection_mid_request() {
    let server = builder("breakwater", 2).serve(slow).unwrap();
    for _ in 0..10 {
        let mut peer = Peer::registered(&server);
        peer.send(&call(1, b""));
        let received = server.counts().received;
        eventually(&server, |server| server.counts().received >= received);
        // Closing with a linger of zero resets the connection.
        setsockopt(&peer.stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    }
    is_settled(&server);
    is_well(&server);
}

#[test]
fn a_client_that_ends_together_with_its_last_bytes() {
    // The last bytes and the end arrive while the only core is busy: one event for both.
    let server = builder("breakwater", 1).serve(slow).unwrap();
    let mut busy = Peer::registered(&server);
    for round in 1..=3 {
        let mut peer = Peer::registered(&server);
        busy.send(&call(round, b""));
        eventually(&server, |server| server.counts().received == round);
        // Only bytes without a response: a response to a closed peer would be an event of its own.
        peer.stream.write_all(&encode(&call(1, b"half"))[..30]).unwrap();
        drop(peer);
        assert!(busy.answer().unwrap().starts_with("Response"));
    }
    drop(busy);
    is_settled(&server);
    is_well(&server);
}

#[test]
fn a_client_that_deregisters_and_closes_its_half_gets_its_pending_answers() {
    let server = builder("breakwater", 1).serve(slow).unwrap();
    let mut peer = Peer::connect(&server);
    peer.stream.write_all(&[encode(&register()), encode(&call(1, b"")), encode(&Frame::Deregister)].concat()).unwrap();
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert!(peer.receive().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
    assert_eq!(peer.answer(), None);
    is_settled(&server);
    let counts = server.counts();
    assert_eq!((counts.completed, counts.abandoned), (1, 0), "{counts:?}");
}

#[test]
fn a_silently_vanished_peer_is_closed_after_the_idle_timeout() {
    let server =
        builder("breakwater", 1).timeouts(Nanos::from_secs(1), Nanos::from_secs(10)).serve(peer::echo).unwrap();
    let mut silent = Peer::registered(&server);
    let _unregistered = Peer::connect(&server);
    let mut pinging = Peer::registered(&server);
    assert!(silent.ask(1, b"x").starts_with("Response"));
    assert!(server.gauges().credits_issued.unwrap() > 0);
    let gone = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let received: Vec<String> = std::iter::from_fn(|| silent.receive()).collect();
            gone.store(true, Ordering::SeqCst);
            received
        });
        // A ping is enough to stay. The silent connection has got its error, and does not end its
        // half either.
        while !gone.load(Ordering::SeqCst) || server.counts().connections > 1 {
            pinging.send(&Frame::Ping(Ping { timestamp: Timestamp(3) }));
            // A fraction of the allowed silence.
            std::thread::sleep(Duration::from_millis(20));
        }
        silent.join().unwrap()
    });
    ends_with(&received, ErrorCode::Timeout);
    assert!(pinging.ask(1, b"x").starts_with("Response"));
    drop(pinging);
    is_settled(&server);
}

/// Bytes of pongs that `count` sessions get in a fixed time, after more pings than allowed.
fn count_pongs(count: usize) -> usize {
    let server = builder("breakwater", 1).serve(peer::echo).unwrap();
    let flood = encode(&Frame::Ping(Ping { timestamp: Timestamp(3) })).repeat(8 * 1024);
    let mut crowd: Vec<Peer> = (0..count).map(|_| Peer::registered(&server)).collect();
    crowd.iter_mut().for_each(|peer| peer.stream.write_all(&flood).unwrap());
    // The same time for every crowd, so that the responses compare.
    std::thread::sleep(Duration::from_millis(500));
    let mut read = |peer: &mut Peer| {
        peer.stream.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        std::iter::from_fn(|| peer.stream.read(&mut bytes).ok()).sum::<usize>()
    };
    crowd.iter_mut().map(&mut read).sum()
}

#[test]
fn many_sessions_share_one_quota_of_messages() {
    // Each session has a quota, too: without the core's quota the larger crowd would get four times
    // as much. On a slow machine quotas may be renewed meanwhile, but not every time.
    for attempt in 1.. {
        let (few, many) = (count_pongs(20), count_pongs(80));
        if few > 0 && many < 2 * few {
            return;
        }
        assert!(attempt < 4, "{few} bytes for 20 sessions, {many} for 80");
    }
}

#[test]
fn a_client_that_never_reads_is_read_up_to_a_limit_and_then_closed() {
    let server = builder("none", 1)
        .timeouts(Nanos::from_secs(300), Nanos::from_millis(300))
        .serve(|_: &Request<'_>, reply: &mut Vec<u8>| {
            reply.resize(50_000, 1);
            Ok(())
        })
        .unwrap();
    let mut stuck_peer = Peer::connect(&server);
    stuck_peer.send(&register());
    stuck_peer.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = 0;
    // Writing fails eventually: the server stops reading, and then closes the connection.
    while request < 1_000_000 {
        request += 1;
        if stuck_peer.stream.write_all(&encode(&call(request, b""))).is_err() {
            break;
        }
        if request % 200 == 0 {
            is_well(&server);
        }
    }
    eventually(&server, |server| server.counts().connections == 0);
    // 1 MiB may wait at the server, some MiB in the sockets' buffers, plus the calls of one read.
    let counts = server.counts();
    assert!(counts.received < 2_000, "{counts:?}");
    is_settled(&server);
}

#[test]
fn a_stop_while_clients_do_not_stop() {
    for controller in ["none", "breakwater"] {
        let server = builder(controller, 2)
            .serve(|_: &Request<'_>, _: &mut Vec<u8>| {
                // A service time, so that calls wait when the server stops.
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
                    let pings = encode(&Frame::Ping(Ping { timestamp: Timestamp(1) })).repeat(50);
                    let mut request = 0;
                    while going_on.load(Ordering::SeqCst) {
                        request += 1;
                        let all = [pings.clone(), encode(&call(request, b""))].concat();
                        if peer.stream.write_all(&all).is_err() {
                            break;
                        }
                    }
                    let _ = peer.stream.shutdown(Shutdown::Both);
                    reading.join().unwrap();
                });
            }
            eventually(&server, |server| server.counts().received > 10);
            // Returns although there is always something to read.
            server.stop().unwrap();
            going_on.store(false, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_client_that_sends_without_pause_does_not_starve_others() {
    let server = start("breakwater", 1);
    let mut flooder = Peer::registered(&server);
    // A large call first: afterwards the server reads as much at once.
    flooder.send(&call(1, &vec![0; 1 << 20]));
    assert!(flooder.answer().unwrap().starts_with("Response"));
    let going_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let mut reader = flooder.stream.try_clone().unwrap();
        scope.spawn(move || {
            let mut sink = vec![0; 1 << 20];
            while reader.read(&mut sink).is_ok_and(|count| count > 0) {}
        });
        scope.spawn(|| {
            let pings = encode(&Frame::Ping(Ping { timestamp: Timestamp(1) })).repeat(20_000);
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
fn a_client_that_keeps_sending_still_receives_the_final_error() {
    let server = start("none", 1);
    for _ in 0..20 {
        let mut peer = Peer::connect(&server);
        let mut bytes = [encode(&register()), b"this is no frame".to_vec()].concat();
        // More than one read: closing with this unread would reset the connection.
        bytes.resize(200_000, 7);
        peer.stream.write_all(&bytes).unwrap();
        assert!(peer.receive().unwrap().starts_with("Welcome"));
        assert!(peer.receive().unwrap().contains("Malformed"));
        // The server's half is closed, and it discards its input.
        peer.stream.write_all(&bytes).unwrap();
        assert_eq!(peer.stream.read(&mut [0; 16]).unwrap(), 0);
    }
    is_settled(&server);
}

#[test]
fn clients_that_stay_open_after_an_error_are_closed() {
    let server = start("breakwater", 1);
    let mut peers: Vec<Peer> = (0..300).map(|_| Peer::registered(&server)).collect();
    for peer in &mut peers {
        peer.send(&register());
    }
    for peer in &mut peers {
        assert!(peer.answer().unwrap().contains("Unexpected"));
    }
    is_settled(&server);
    drop(peers);
}

#[test]
fn a_frame_that_takes_too_long() {
    let server =
        builder("breakwater", 1).timeouts(Nanos::from_millis(300), Nanos::from_secs(10)).serve(peer::echo).unwrap();
    let mut slow = Peer::registered(&server);
    let frame = encode(&call(1, &[7; 100_000]));
    let mut stream = slow.stream.try_clone().unwrap();
    // Never silent, and never done.
    let slowly = std::thread::spawn(move || {
        for byte in frame.chunks(1) {
            if stream.write_all(byte).is_err() {
                break;
            }
            // One byte at a time, for longer than a frame may take.
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let received: Vec<String> = std::iter::from_fn(|| slow.receive()).collect();
    ends_with(&received, ErrorCode::Timeout);
    slow.stream.shutdown(Shutdown::Both).unwrap();
    slowly.join().unwrap();
    is_settled(&server);
}

#[test]
fn a_client_that_resets_its_connection_while_it_is_not_read() {
    // The handler never responds, so the server no longer reads the connection, nor its end.
    let never = |_| std::future::pending();
    let server = builder("none", 1).serve_async(never).unwrap();
    let mut peer = Peer::registered(&server);
    for request in 1..=300 {
        peer.send(&call(request, b""));
    }
    eventually(&server, |server| server.counts().received == 256);
    setsockopt(&peer.stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    drop(peer);
    is_settled(&server);
    assert_eq!(server.counts().abandoned, 256);
}

/// All messages of clients in the wire format's corpus, valid and hostile.
#[test]
fn the_connection_ends_after_any_message_of_the_corpus() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("client-"));
    files.sort();
    assert!(files.len() > 30);
    let server = start("breakwater", 2);
    for file in files {
        for before in [Vec::new(), encode(&register())] {
            let mut peer = Peer::connect(&server);
            let bytes = [before, std::fs::read(&file).unwrap()].concat();
            // The server may have closed the connection already; its last messages are still
            // readable.
            let _ = peer.stream.write_all(&bytes);
            let _ = peer.stream.shutdown(Shutdown::Write);
            while peer.receive().is_some() {}
        }
    }
    is_settled(&server);
    is_well(&server);
}

/// Sends as if it had a window of `outstanding`, until the server closes the connection. Returns
/// the server's last message.
fn exceed_window(server: &Server, outstanding: u64, going_on: &AtomicBool) -> Option<String> {
    let mut peer = Peer::connect(server);
    peer.send(&register());
    let mut next = 0;
    let mut ask = |peer: &mut Peer| {
        next += 1;
        // Writing fails after the close; the last messages are still readable.
        let _ = peer.stream.write_all(&encode(&call(next, b"")));
    };
    for _ in 0..outstanding {
        ask(&mut peer);
    }
    let mut last = None;
    while going_on.load(Ordering::SeqCst) {
        let Some(message) = peer.receive() else { break };
        if message.starts_with("Response") || message.starts_with("Drop") {
            ask(&mut peer);
        }
        last = Some(message);
    }
    last
}

#[test]
fn a_client_over_its_credits_is_rejected_then_slowed_then_disconnected() {
    let server = start("breakwater", 1);
    let last = exceed_window(&server, 100, &AtomicBool::new(true)).unwrap();
    assert!(last.starts_with("Error") && last.contains("Unexpected") && last.contains("without credit"), "{last}");
    is_settled(&server);
    let counts = server.counts();
    assert!(counts.without_credit > 0 && counts.without_credit <= counts.rejected, "{counts:?}");
    // Calls without credit did not reach the controller; of the others, at most one window at a
    // time did.
    assert!(counts.completed > 0, "{counts:?}");
    is_well(&server);
}

#[test]
fn a_paused_client_is_not_read() {
    // The pool of a fixed set of cores. With changing cores, an unused pool grows until a window of
    // sixty is valid. Each response to those calls would make more of the burst valid.
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[("allocator_aware", RawParam::Switch(false))]).unwrap();
    let server = builder("breakwater", 1).admission(&algorithm, params).serve(peer::echo).unwrap();
    let mut peer = Peer::connect(&server);
    peer.send(&register());
    let burst: Vec<u8> = (1..=2_000).flat_map(|request| encode(&call(request, b""))).collect();
    let mut writer = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let _ = writer.write_all(&burst);
    });
    eventually(&server, |server| server.counts().without_credit >= 65);
    // The pause began within bytes already read, and the rest of those waits too. Each pause lets
    // one call through and becomes longer, so the server reads hardly any of two thousand.
    let received: Vec<String> = std::iter::from_fn(|| peer.receive()).collect();
    assert!(received.last().unwrap().starts_with("Error"), "{:?}", received.last());
    is_settled(&server);
    assert!(server.counts().received < 200, "{:?}", server.counts());
    sending.join().unwrap();
}

#[test]
fn without_credits_the_bound_on_unanswered_calls_remains() {
    let may_begin: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let server = builder("none", 1)
        .serve(move |_: &Request<'_>, _: &mut Vec<u8>| {
            until("the calls may begin", || may_begin.load(Ordering::SeqCst));
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::connect(&server);
    // One read brings more calls than a connection may have unanswered: a long call grows the
    // server's buffer first.
    peer.send(&register());
    let mut burst = encode(&call(1, &[0; 200_000]));
    burst.extend((2..=2_000).flat_map(|request| encode(&call(request, b""))));
    let mut writer = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&burst).unwrap());
    eventually(&server, |server| server.counts().received > 0);
    // No event shows the end of reading: within this time a server would read all of them.
    std::thread::sleep(Duration::from_millis(100));
    assert!(server.counts().received <= 256, "{:?}", server.counts());
    may_begin.store(true, Ordering::SeqCst);
    assert!(peer.receive().unwrap().starts_with("Welcome"));
    for _ in 0..2_000 {
        assert!(peer.receive().unwrap().starts_with("Response"));
    }
    sending.join().unwrap();
    assert_eq!(server.counts().without_credit, 0);
}
