//! Faults on the client's side of a connection, one test each: the server still serves others, no
//! connection hangs, every credit comes back, and every request has one end.
//!
//! Elsewhere: a client that ignores its window (`enforcement`), random damage (`fuzz`), all faults
//! together (`swarm`), and faults of real sockets (server/rpc/tests).

use crate::support::{PairExt, call, encode, fragmenting_wire, pair, register, start};
use leeward_core::units::Nanos;
use leeward_pair::{Cut, Pair, PairConfig, ReadMode, RequestOutcome, WireModel, Work, echo};
use leeward_wire::{ErrorCode, Frame, Ping, Timestamp};

/// A slow server, so that a client can be gone before its answer.
fn slow(controller: &str) -> Pair {
    let config = PairConfig { wire: fragmenting_wire(), ..PairConfig::default() };
    pair(controller, config, Box::new(|_, _| Work::Result(Nanos::from_millis(50), vec![1])))
}

/// Checks that the server's last frame is this error.
fn ends_with(frames: &[String], code: ErrorCode) {
    let last = frames.last().map_or("nothing", String::as_str);
    assert!(last.starts_with("Error") && last.contains(&format!("{code:?}")), "{code:?}: {frames:?}");
}

fn ping() -> Frame<'static> {
    Frame::Ping(Ping { timestamp: Timestamp(3) })
}

#[test]
fn a_client_that_is_cut_off_mid_request() {
    for cut in [Cut::Reset, Cut::ClientHalf] {
        let mut pair = slow("breakwater");
        for round in 1..=10 {
            let client = pair.connect_registered();
            pair.send_frame(client, &call(1, b""));
            pair.wait_until("it is received", |pair| pair.counts().received == round);
            pair.cut(client, cut);
        }
        pair.assert_settled();
        assert_eq!(pair.counts().abandoned, 10, "{cut:?}");
        pair.assert_serving();
        pair.assert_settled();
    }
}

#[test]
fn a_client_that_is_cut_off_before_its_request_arrives() {
    let mut pair = slow("breakwater");
    for cut in [Cut::Reset, Cut::ClientHalf, Cut::ServerHalf].into_iter().cycle().take(30) {
        let client = pair.connect_registered();
        pair.send_frame(client, &call(1, b""));
        let moment = pair.rng().below(60_000);
        pair.run_for(Nanos(moment));
        pair.cut(client, cut);
        pair.close(client);
    }
    pair.assert_settled();
    pair.assert_serving();
    pair.assert_settled();
}

#[test]
fn a_client_that_ends_together_with_half_a_frame() {
    // The last bytes and the end arrive while the only worker is busy.
    let mut pair = slow("breakwater");
    let busy = pair.connect_registered();
    for round in 1..=3 {
        let client = pair.connect_registered();
        pair.send_frame(busy, &call(round, b""));
        pair.wait_until("it is received", |pair| pair.counts().received == round);
        // Half a frame, which gets no answer: an answer to a closed peer would be a fault of its
        // own.
        pair.send_bytes(client, &encode(&call(1, b"half"))[..30]);
        pair.close(client);
        assert!(pair.receive_answer(busy).unwrap().starts_with("Response"));
    }
    pair.close(busy);
    pair.assert_settled();
    pair.assert_serving();
}

#[test]
fn a_client_that_deregisters_and_closes_its_half_gets_its_pending_answers() {
    let mut pair = slow("breakwater");
    let frames = pair.exchange(&[encode(&register()), encode(&call(1, b"")), encode(&Frame::Deregister)].concat());
    assert!(frames[0].starts_with("Welcome") && frames[1].starts_with("Response"), "{frames:?}");
    assert_eq!(frames.len(), 2);
    pair.assert_settled();
    let counts = pair.counts();
    assert_eq!((counts.completed, counts.abandoned), (1, 0), "{counts:?}");
}

#[test]
fn a_call_after_the_final_error_is_a_violation() {
    let mut pair = slow("breakwater");
    let all = [encode(&register()), encode(&Frame::Deregister), encode(&call(1, b""))].concat();
    ends_with(&pair.exchange(&all), ErrorCode::Unexpected);
    pair.assert_settled();
    assert_eq!(pair.counts().received, 0);
}

#[test]
fn a_second_registration_and_a_call_before_the_first_are_violations() {
    let mut pair = start("breakwater");
    for bytes in [encode(&register()).repeat(2), encode(&call(1, b"")), encode(&ping()), encode(&Frame::Deregister)] {
        ends_with(&pair.exchange(&bytes), ErrorCode::Unexpected);
    }
    pair.assert_settled();
    assert_eq!(pair.counts().received, 0);
}

#[test]
fn a_silently_vanished_peer_is_closed_after_the_idle_timeout() {
    let config = PairConfig { idle_timeout: Nanos::from_secs(1), wire: fragmenting_wire(), ..PairConfig::default() };
    let mut pair = pair("breakwater", config, echo(Nanos(1_000)));
    let silent = pair.connect_registered();
    let _unregistered = pair.connect_raw();
    let pinger = pair.connect_registered();
    let half_open = pair.connect_registered();
    assert!(pair.call_with_credit(silent, 1, b"x").starts_with("Response"));
    assert!(pair.gauges().credits_issued.unwrap() > 0);
    pair.cut(half_open, Cut::Silence);
    // A ping is enough to stay connected.
    for _ in 0..200 {
        pair.send_frame(pinger, &ping());
        pair.run_for(Nanos::from_millis(20));
    }
    assert_eq!(pair.counts().connections, 1);
    let frames: Vec<String> = std::iter::from_fn(|| pair.receive(silent)).collect();
    ends_with(&frames, ErrorCode::Timeout);
    assert!(pair.call_with_credit(pinger, 1, b"x").starts_with("Response"));
    pair.close(pinger);
    pair.assert_settled();
}

#[test]
fn senders_of_single_bytes_are_served_among_others() {
    let mut pair = start("breakwater");
    let senders: Vec<_> = (0..3).map(|_| pair.connect_raw()).collect();
    let other = pair.connect_registered();
    let all = [encode(&register()), encode(&call(1, b"slow")), encode(&Frame::Deregister)].concat();
    let mut request = 0;
    for byte in all {
        for sender in &senders {
            pair.send_bytes(*sender, &[byte]);
        }
        request += 1;
        assert!(pair.call_with_credit(other, request, b"x").starts_with("Response"));
    }
    for sender in senders {
        assert!(pair.receive(sender).unwrap().starts_with("Welcome"));
        assert!(pair.receive_answer(sender).unwrap().starts_with("Response"));
        assert_eq!(pair.receive_answer(sender), None);
    }
    pair.close(other);
    pair.assert_settled();
}

#[test]
fn a_client_that_never_reads_is_read_up_to_a_limit_and_then_closed() {
    let wire = WireModel { buffer_max: 64 * 1024, ..fragmenting_wire() };
    let config = PairConfig { write_timeout: Nanos::from_millis(300), wire, ..PairConfig::default() };
    let mut pair = pair("none", config, Box::new(|_, _| Work::Result(Nanos(1_000), vec![1; 50_000])));
    let unreading = pair.connect_raw();
    pair.set_read_mode(unreading, ReadMode::Paused);
    pair.send_frame(unreading, &register());
    for request in 1..=20_000 {
        pair.send_frame(unreading, &call(request, b""));
        if request % 200 == 0 {
            pair.assert_serving();
        }
    }
    pair.wait_until("it is closed", |pair| pair.counts().connections == 0);
    // 1 MiB may wait at the server and 64 KiB on the wire, beside the unanswered calls.
    let counts = pair.counts();
    assert!(counts.received < 500, "{counts:?}");
    pair.assert_settled();
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let wire = WireModel { buffer_max: 8 * 1024, ..fragmenting_wire() };
    let config = PairConfig { wire, unsent_max: 64 * 1024, ..PairConfig::default() };
    let mut pair = pair("breakwater", config, Box::new(|_, _| Work::Result(Nanos(1_000), vec![1; 20_000])));
    let slow = pair.connect();
    pair.set_read_mode(slow, ReadMode::Slow(1_000, Nanos::from_micros(200)));
    for _ in 0..40 {
        pair.submit(slow, b"x");
        pair.run_for(Nanos::from_millis(5));
        assert!(pair.unanswered(slow) <= 256);
    }
    pair.wait_until("all is read", |pair| pair.open_requests(slow) == 0);
    assert!(pair.outcomes(slow).iter().flatten().any(|end| matches!(end, RequestOutcome::Completed(_))));
    pair.deregister(slow);
    pair.assert_settled();
}

#[test]
fn garbage_ends_the_connection() {
    let mut pair = start("breakwater");
    for round in 0..200 {
        let mut garbage: Vec<u8> = Vec::new();
        for _ in 0..round % 40 + 1 {
            garbage.extend(pair.rng().bits().to_le_bytes());
        }
        if round % 2 == 0 {
            garbage = [encode(&register()), garbage].concat();
        }
        let client = pair.connect_raw();
        pair.send_bytes(client, &garbage);
        pair.close(client);
        // The connection always ends.
        while pair.receive(client).is_some() {}
    }
    pair.assert_settled();
    pair.assert_serving();
}

#[test]
fn another_protocol_is_rejected() {
    let mut pair = start("none");
    ends_with(&pair.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrorCode::Malformed);
    pair.assert_settled();
}

#[test]
fn a_wrong_version_is_rejected() {
    let mut pair = start("none");
    let mut version = encode(&register());
    version[2] = 9;
    ends_with(&pair.exchange(&version), ErrorCode::Version);
    pair.assert_settled();
}

#[test]
fn an_oversized_length_is_rejected() {
    let mut pair = start("none");
    for length in [(1 << 20) + 1, 1 << 30, u32::MAX] {
        let mut oversized = encode(&call(1, b""));
        oversized[4..8].copy_from_slice(&length.to_le_bytes());
        ends_with(&pair.exchange(&[encode(&register()), oversized].concat()), ErrorCode::TooLarge);
    }
    pair.assert_settled();
}

#[test]
fn a_request_id_in_use_is_rejected() {
    let mut pair = slow("none");
    let twice = [encode(&register()), encode(&call(1, b"a")), encode(&call(1, b"a"))].concat();
    let frames = pair.exchange(&twice);
    ends_with(&frames, ErrorCode::DuplicateRequest);
    // The error is the last frame, so the first call's answer is not sent after it.
    assert!(!frames.iter().any(|frame| frame.starts_with("Response")), "{frames:?}");
    pair.assert_settled();
    assert_eq!(pair.counts().abandoned, 1);
}

#[test]
fn a_stop_while_clients_do_not_stop() {
    for controller in ["none", "breakwater", "dagor", "seda"] {
        let config =
            PairConfig { wire: fragmenting_wire(), drain_timeout: Nanos::from_millis(50), ..PairConfig::default() };
        let mut pair = pair(controller, config, echo(Nanos::from_millis(1)));
        let abusers: Vec<_> = (0..3).map(|_| pair.connect_registered()).collect();
        let honest: Vec<_> = (0..3).map(|_| pair.connect()).collect();
        let pings = encode(&ping()).repeat(10);
        let mut request = 0;
        let mut send_round = |pair: &mut Pair| {
            request += 1;
            for abuser in &abusers {
                pair.send_bytes(*abuser, &[pings.clone(), encode(&call(request, b""))].concat());
            }
            for client in &honest {
                pair.submit(*client, b"x");
            }
            pair.run_for(Nanos::from_micros(100));
        };
        (0..200).for_each(|_| send_round(&mut pair));
        assert!(pair.counts().received > 10);
        pair.stop();
        // The stop completes although there are always bytes to read.
        for _ in 0..600 {
            send_round(&mut pair);
        }
        assert!(pair.has_stopped(), "{controller}: {:?}", pair.counts());
        let late = pair.connect();
        let request_late = pair.submit(late, b"x");
        pair.run_for(Nanos::from_millis(10));
        assert!(
            matches!(pair.outcome(late, request_late), Some(RequestOutcome::Disconnected(_))),
            "{:?}",
            pair.outcome(late, request_late)
        );
        assert!(pair.error(late).unwrap().to_string().contains("ShuttingDown"), "{:?}", pair.error(late));
        for abuser in abusers {
            pair.close(abuser);
        }
        pair.assert_settled();
    }
}

#[test]
fn calls_that_come_while_the_server_stops_are_dropped_and_say_why() {
    let mut pair = slow("breakwater");
    let (early, late) = (pair.connect(), pair.connect());
    let first = pair.submit(early, b"x");
    pair.submit(late, b"x");
    pair.wait_until("both are received", |pair| pair.counts().received == 2);
    pair.stop();
    let second = pair.submit(early, b"y");
    pair.wait_until("it has stopped", Pair::has_stopped);
    pair.run_for(Nanos::from_millis(10));
    assert_eq!(pair.outcome(early, first), Some(&RequestOutcome::Completed(vec![1])));
    // The server's error may have arrived before the client could send the request.
    assert!(
        !matches!(pair.outcome(early, second), None | Some(RequestOutcome::Completed(_))),
        "{:?}",
        pair.outcome(early, second)
    );
    pair.assert_settled();
}

#[test]
fn a_client_that_sends_without_pause_does_not_starve_others() {
    let mut pair = start("breakwater");
    let flooder = pair.connect_registered();
    // A large call first: it enlarges the buffer, and so each later read.
    assert!(pair.call_with_credit(flooder, 1, &vec![0; 1 << 20]).starts_with("Response"));
    let pings = encode(&ping()).repeat(200);
    let other = pair.connect_registered();
    for request in 1..=300 {
        pair.send_bytes(flooder, &pings);
        assert!(pair.call_with_credit(other, request, b"x").starts_with("Response"));
    }
    pair.close(flooder);
    pair.close(other);
    pair.assert_settled();
}

#[test]
fn a_client_that_keeps_sending_still_receives_the_final_error() {
    let mut pair = start("none");
    for _ in 0..20 {
        let client = pair.connect_raw();
        let mut bytes = [encode(&register()), b"this is no frame".to_vec()].concat();
        bytes.resize(200_000, 7);
        pair.send_bytes(client, &bytes);
        assert!(pair.receive(client).unwrap().starts_with("Welcome"));
        assert!(pair.receive(client).unwrap().contains("Malformed"));
        // The server's half is closed, and the server discards further bytes.
        pair.send_bytes(client, &bytes);
        assert_eq!(pair.receive(client), None);
    }
    pair.assert_settled();
}

#[test]
fn clients_that_stay_open_after_an_error_are_closed() {
    let mut pair = start("breakwater");
    let clients: Vec<_> = (0..300).map(|_| pair.connect_registered()).collect();
    for client in &clients {
        pair.send_frame(*client, &register());
    }
    for client in &clients {
        assert!(pair.receive_answer(*client).unwrap().contains("Unexpected"));
    }
    pair.assert_settled();
}

#[test]
fn a_frame_that_takes_too_long() {
    let config = PairConfig { frame_timeout: Nanos::from_millis(300), ..PairConfig::default() };
    let mut pair = pair("breakwater", config, echo(Nanos(1_000)));
    let slow = pair.connect_registered();
    // Never silent, and never complete.
    for byte in encode(&call(1, &[7; 100])) {
        pair.send_bytes(slow, &[byte]);
        pair.run_for(Nanos::from_millis(10));
    }
    let frames: Vec<String> = std::iter::from_fn(|| pair.receive(slow)).collect();
    ends_with(&frames, ErrorCode::Timeout);
    pair.assert_settled();
}

#[test]
fn a_client_that_resets_its_connection_while_it_is_not_read() {
    // No call is ever answered, so the connection is not read any more, its end included.
    let mut pair = pair("none", PairConfig::default(), Box::new(|_, _| Work::Hang));
    let client = pair.connect_registered();
    for request in 1..=300 {
        pair.send_frame(client, &call(request, b""));
    }
    pair.wait_until("as many as may be unanswered have come", |pair| pair.counts().received == 256);
    pair.cut(client, Cut::Reset);
    pair.assert_settled();
    assert_eq!(pair.counts().abandoned, 256);
}

#[test]
fn connections_over_the_limit_are_rejected() {
    let config = PairConfig { connections_max: 2, ..PairConfig::default() };
    let mut pair = pair("breakwater", config, echo(Nanos(1_000)));
    let (first, second) = (pair.connect_registered(), pair.connect_registered());
    ends_with(&pair.exchange(&encode(&register())), ErrorCode::ConnectionLimit);
    pair.close(first);
    pair.wait_until("one has gone", |pair| pair.counts().connections == 1);
    pair.assert_serving();
    pair.close(second);
    pair.assert_settled();
}
