//! The client against a server, or a wire, that misbehaves: invalid bytes, closed connections,
//! silence, rejections. Tests of the client with sockets, which has replicas, retries and
//! time-outs, are in server/rpc/tests.

use crate::support::{PairExt, TIMEOUT, fragmenting_wire, pair, pair_with, relaxed_slo, start};
use leeward_core::params::RawParam;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Priority};
use leeward_pair::{ClientId, Cut, Endpoint, Pair, PairConfig, ReadMode, RequestOutcome, Work, echo};
use leeward_session::client::{ConnectionError, Phase, RequestStage};
use leeward_wire::{
    Budget, DecodeStatus, Encoder, ErrorCode, FailureCode, FatalError, Frame, Message, PayloadLimit, RejectCode,
    RequestId, Side, Timestamp, Version, decode,
};

/// A pair whose client waits for the answer to its first call; the answer is in flight.
fn with_answer_in_flight() -> (Pair, ClientId) {
    let mut pair = pair("breakwater", PairConfig::default(), echo(Nanos(1_000)));
    let client = pair.connect();
    pair.submit(client, b"x");
    assert!(pair.run_while(TIMEOUT, |pair| pair.counts().completed == 0));
    (pair, client)
}

/// Changes the answer in the last chunk.
fn alter_answer(chunks: &[Vec<u8>], change: impl FnOnce(&mut leeward_wire::Answer)) -> Vec<u8> {
    let bytes = chunks.last().unwrap();
    let decoded = decode(bytes, Side::Server, PayloadLimit::DEFAULT).unwrap();
    let DecodeStatus::Frame { frame: Frame::Response(mut response), .. } = decoded else { panic!("{decoded:?}") };
    change(&mut response.answer);
    encoded(&Frame::Response(response))
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST).append(frame, &mut bytes).unwrap();
    bytes
}

type Tamper = fn(&mut Vec<Vec<u8>>);

#[test]
fn garbage_from_the_server_ends_the_connection_and_each_request_once() {
    if crate::DATAGRAMS.is_some() {
        // Tampers with bytes of a stream, or needs more than a datagram.
        return;
    }
    let cases: [(Tamper, bool); 6] = [
        (|chunks| *chunks = vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()], false),
        (|chunks| *chunks = vec![vec![0; 64]], false),
        // An answer to a call that was never made, and an answer with a wrong timestamp.
        (
            |chunks| *chunks = vec![alter_answer(chunks, |answer| answer.request = RequestId::new(u64::MAX).unwrap())],
            false,
        ),
        (|chunks| *chunks = vec![alter_answer(chunks, |answer| answer.timestamp = Timestamp(1))], false),
        (|chunks| chunks.extend_from_within(..), true),
        (
            |chunks| {
                chunks.push(b"this is no frame, and long enough that it can't be the beginning of one either".to_vec())
            },
            true,
        ),
    ];
    for (number, (tamper, is_answered)) in cases.into_iter().enumerate() {
        let (mut pair, client) = with_answer_in_flight();
        pair.tamper(client, Endpoint::Client, tamper);
        pair.run_for(Nanos::from_micros(100));
        let expected = if is_answered {
            RequestOutcome::Completed(b"x".to_vec())
        } else {
            RequestOutcome::Disconnected(RequestStage::Sent)
        };
        assert_eq!(pair.outcome(client, 0), Some(&expected), "{number}");
        assert_eq!(pair.phase(client), Phase::Closed, "{number}");
        assert!(pair.error(client).is_some(), "{number}");
        pair.assert_settled();
        // The next connection is served.
        pair.assert_serving();
    }
}

#[test]
fn a_frame_that_is_cut_off_by_the_end_of_the_stream() {
    let (mut pair, client) = with_answer_in_flight();
    pair.tamper(client, Endpoint::Client, |chunks| *chunks = vec![b"LW\x01\x04".to_vec()]);
    pair.cut(client, Cut::ServerHalf);
    pair.run_for(Nanos::from_micros(100));
    assert!(matches!(pair.error(client), Some(ConnectionError::Wire(_))), "{:?}", pair.error(client));
    assert_eq!(pair.outcome(client, 0), Some(&RequestOutcome::Disconnected(RequestStage::Sent)));
    pair.assert_settled();
}

#[test]
fn the_servers_final_error_is_the_reason() {
    let (mut pair, client) = with_answer_in_flight();
    let error_frame = FatalError { code: ErrorCode::Internal, message: Message::new("on fire") };
    pair.tamper(client, Endpoint::Client, |chunks| *chunks = vec![encoded(&Frame::Error(error_frame))]);
    pair.run_for(Nanos::from_micros(100));
    assert!(pair.error(client).unwrap().to_string().contains("on fire"));
    assert_eq!(pair.outcome(client, 0), Some(&RequestOutcome::Disconnected(RequestStage::Sent)));
    pair.assert_settled();
}

#[test]
fn a_lost_connection_distinguishes_sent_from_queued_requests() {
    for cut in [Cut::Reset, Cut::ServerHalf] {
        let mut pair = pair("breakwater", PairConfig::default(), Box::new(|_, _| Work::Hang));
        let client = pair.connect();
        // The one call on trust, and a call that waits for a credit.
        let (sent, waits) = (pair.submit(client, b"sent"), pair.submit(client, b"waits"));
        pair.wait_until("it is received", |pair| pair.counts().received == 1);
        pair.cut(client, cut);
        pair.run_for(Nanos::from_millis(1));
        assert_eq!(pair.outcome(client, sent), Some(&RequestOutcome::Disconnected(RequestStage::Sent)), "{cut:?}");
        assert!(matches!(pair.outcome(client, waits), Some(RequestOutcome::Disconnected(_))), "{cut:?}");
        pair.assert_settled();
    }
}

#[test]
fn a_silent_server_is_pinged() {
    let mut pair = start("breakwater");
    let client = pair.connect();
    pair.submit(client, b"x");
    pair.wait_until("it is answered", |pair| pair.open_requests(client) == 0);
    assert!(pair.ping(client));
    assert!(!pair.ping(client), "one question at a time");
    pair.run_for(Nanos::from_millis(1));
    assert!(pair.ping(client), "it was answered");
    pair.run_for(Nanos::from_millis(1));
    pair.cut(client, Cut::Silence);
    assert!(pair.ping(client));
    pair.run_for(Nanos::from_secs(1));
    assert!(!pair.ping(client), "it never is");
    pair.close(client);
    // The server never receives the end, and closes the connection by itself.
    pair.run_for(Nanos::from_secs(70));
    pair.assert_settled();
}

#[test]
fn requests_end_with_the_outcome_of_their_handler() {
    if crate::DATAGRAMS.is_some() {
        // Tampers with bytes of a stream, or needs more than a datagram.
        return;
    }
    let handler = |payload: &[u8], _: &mut _| match payload {
        b"lock" => Work::Congested(Nanos(1_000), "accounts".into()),
        b"no" => Work::Failure(Nanos(1_000), "no".into()),
        other => Work::Result(Nanos(1_000), other.to_vec()),
    };
    let mut pair =
        pair("breakwater", PairConfig { wire: fragmenting_wire(), ..PairConfig::default() }, Box::new(handler));
    let client = pair.connect();
    let mut outcome_of = |payload: &[u8]| {
        let token = pair.submit(client, payload);
        pair.wait_until("it ends", |pair| pair.open_requests(client) == 0);
        pair.outcome(client, token).cloned().unwrap()
    };
    assert_eq!(outcome_of(b"lock"), RequestOutcome::Rejected(RejectCode::Lock));
    assert_eq!(outcome_of(b"no"), RequestOutcome::Failed(FailureCode::Failed, "no".into()));
    assert_eq!(outcome_of(b"yes"), RequestOutcome::Completed(b"yes".to_vec()));
    assert_eq!(outcome_of(&vec![7; (1 << 20) + 1]), RequestOutcome::TooLong);
    assert_eq!(outcome_of(&vec![7; 1 << 20]), RequestOutcome::Completed(vec![7; 1 << 20]));
    pair.deregister(client);
    pair.assert_settled();
}

#[test]
fn a_cancelled_request_is_never_sent_and_one_that_was_keeps_its_credit() {
    let mut pair = pair("breakwater", PairConfig::default(), echo(Nanos::from_millis(1)));
    let client = pair.connect();
    let (first, unwanted, last) =
        (pair.submit(client, b"first"), pair.submit(client, b"unwanted"), pair.submit(client, b"last"));
    assert!(pair.cancel(client, unwanted));
    assert!(!pair.cancel(client, unwanted));
    pair.wait_until("the first is with its worker", |pair| pair.counts().received > 0);
    assert!(pair.cancel(client, first));
    pair.wait_until("the last has its end", |pair| pair.open_requests(client) == 0);
    assert_eq!(pair.outcome(client, last), Some(&RequestOutcome::Completed(b"last".to_vec())));
    assert_eq!(pair.outcome(client, first), Some(&RequestOutcome::Cancelled));
    pair.run_for(Nanos::from_millis(10));
    // The unwanted request never arrived.
    assert_eq!(pair.counts().received, 2);
    pair.close(client);
    pair.assert_settled();
}

#[test]
fn swapped_chunks_are_a_violation_and_every_request_ends() {
    if crate::DATAGRAMS.is_some() {
        // Tampers with bytes of a stream, or needs more than a datagram.
        return;
    }
    for to in [Endpoint::Server, Endpoint::Client] {
        let mut pair = start("breakwater");
        let client = pair.connect();
        pair.submit(client, b"x");
        pair.wait_until("it is answered", |pair| pair.open_requests(client) == 0);
        let other = pair.connect();
        let mut swapped = false;
        for _ in 0..100 {
            pair.submit(client, b"a payload that is short beside its header");
            pair.submit(other, b"x");
            pair.run_for(Nanos::from_micros(20));
            pair.tamper(client, to, |chunks| {
                // Moves the first bytes of a header behind the chunk after them.
                if let Some(at) = chunks.iter().position(|chunk| chunk.starts_with(b"LW"))
                    && chunks.len() > at + 1
                    && !chunks[at + 1].starts_with(b"LW")
                {
                    chunks.swap(at, at + 1);
                    swapped = true;
                }
            });
            if swapped {
                break;
            }
        }
        assert!(swapped);
        pair.wait_until("the offence is found", |pair| !pair.is_open(client));
        pair.run_for(Nanos::from_millis(1));
        assert!(pair.error(client).is_some() || pair.close_reason(client).is_some());
        assert_eq!(pair.open_requests(client), 0);
        pair.wait_until("the other is served", |pair| pair.open_requests(other) == 0);
        pair.deregister(other);
        pair.assert_settled();
    }
}

#[test]
fn a_budget_that_is_spent_in_the_queue_ends_the_request_unsent_or_dropped() {
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut pair = pair_with("breakwater", &[], environment, PairConfig::default(), echo(Nanos::from_micros(100)));
    let client = pair.connect();
    for _ in 0..50 {
        pair.submit_with(client, b"x", Priority::HIGHEST, Budget::of(Nanos::from_micros(50)));
    }
    pair.wait_until("all end", |pair| pair.open_requests(client) == 0);
    let local = pair.outcomes(client).iter().flatten().filter(|end| matches!(end, RequestOutcome::Local(_))).count();
    assert!(local > 0, "{:?}", pair.outcomes(client));
    pair.deregister(client);
    pair.assert_settled();
}

#[test]
fn output_is_bounded_while_the_server_does_not_read() {
    let limits = [("client_queue", RawParam::Integer(8)), ("max_outstanding", RawParam::Integer(16))];
    let config = PairConfig { write_timeout: Nanos::from_millis(100), ..PairConfig::default() };
    let mut pair = pair_with("none", &limits, relaxed_slo(), config, echo(Nanos(1_000)));
    let client = pair.connect();
    pair.set_read_mode(client, ReadMode::Paused);
    for _ in 0..200 {
        pair.submit(client, &[1; 1_000]);
        pair.run_for(Nanos::from_micros(10));
    }
    // Sixteen unanswered, eight in the queue; the others were displaced.
    assert!(pair.open_requests(client) <= 24, "{}", pair.open_requests(client));
    pair.set_read_mode(client, ReadMode::Eager);
    pair.wait_until("all end", |pair| pair.open_requests(client) == 0);
    pair.deregister(client);
    pair.assert_settled();
}
