//! Cancelled calls, and peers of different protocol versions.

use crate::support::{PairExt, call, encode, encode_version, pair, register};
use leeward_core::units::Nanos;
use leeward_pair::{Pair, PairConfig, RequestOutcome, echo};
use leeward_session::client::{ConnectionConfig, RequestStage};
use leeward_wire::{Cancel, ErrorCode, Frame, RejectCode, RequestId, Version};

/// A server with a slow worker, so that calls wait.
fn slow(version: Version) -> Pair {
    let config = PairConfig { max_version: version, ..PairConfig::default() };
    pair("none", config, echo(Nanos::from_millis(1)))
}

fn version_one() -> ConnectionConfig {
    ConnectionConfig { version: Version::One, ..ConnectionConfig::default() }
}

#[test]
fn a_call_that_waits_at_the_server_is_cancelled_before_its_turn() {
    let mut pair = slow(Version::NEWEST);
    let client = pair.connect();
    pair.submit(client, b"the first takes the worker");
    pair.wait_until("it is with the worker", |pair| pair.counts().received == 1);
    let (unwanted, last) = (pair.submit(client, b"unwanted"), pair.submit(client, b"last"));
    pair.wait_until("both wait at the server", |pair| pair.counts().received == 3);
    assert!(pair.cancel(client, unwanted));
    pair.wait_until("all have ended", |pair| pair.open_requests(client) == 0);
    assert_eq!(pair.outcome(client, unwanted), Some(&RequestOutcome::Cancelled));
    assert_eq!(pair.outcome(client, last), Some(&RequestOutcome::Completed(b"last".to_vec())));
    assert_eq!(pair.cancelled(), 1);
    let counts = pair.counts();
    assert_eq!((counts.completed, counts.rejected), (2, 1));
    // Two executions instead of three.
    assert!(pair.now().0 < 2_500_000, "{:?}", pair.now());
    pair.close(client);
    pair.assert_settled();
}

#[test]
fn an_answer_may_cross_its_cancellation() {
    let mut pair = slow(Version::NEWEST);
    let client = pair.connect();
    let request = pair.submit(client, b"x");
    pair.wait_until("the answer is on its way", |pair| pair.counts().completed == 1);
    assert!(pair.cancel(client, request));
    let next = pair.submit(client, b"y");
    pair.wait_until("the next has ended", |pair| pair.open_requests(client) == 0);
    assert_eq!(pair.outcome(client, next), Some(&RequestOutcome::Completed(b"y".to_vec())));
    assert_eq!(pair.cancelled(), 0);
    pair.close(client);
    pair.assert_settled();
}

#[test]
fn a_client_of_version_1_is_served_and_cancels_nothing() {
    let mut pair = slow(Version::NEWEST);
    let client = pair.connect_with(version_one());
    pair.submit(client, b"the first takes the worker");
    pair.wait_until("it is with the worker", |pair| pair.counts().received == 1);
    let unwanted = pair.submit(client, b"unwanted");
    pair.wait_until("it waits at the server", |pair| pair.counts().received == 2);
    assert!(pair.cancel(client, unwanted));
    pair.wait_until("both are executed", |pair| pair.counts().completed == 2);
    assert_eq!(pair.cancelled(), 0);
    pair.close(client);
    pair.assert_settled();
}

#[test]
fn a_version_1_server_rejects_the_newest_version_and_serves_its_own() {
    let mut pair = slow(Version::One);
    let client = pair.connect();
    let trusted = pair.submit(client, b"on trust");
    pair.wait_until("it has ended", |pair| pair.open_requests(client) == 0);
    // No call was executed, so the application may send it again.
    assert_eq!(pair.outcome(client, trusted), Some(&RequestOutcome::Disconnected(RequestStage::Waiting)));
    assert!(pair.error(client).is_some_and(|error| error.refuses_version()));
    let client = pair.connect_with(version_one());
    let request = pair.submit(client, b"again");
    pair.run_for(Nanos::from_millis(5));
    assert_eq!(pair.outcome(client, request), Some(&RequestOutcome::Completed(b"again".to_vec())));
}

#[test]
fn cancellations_of_unknown_calls_do_no_harm_and_mixed_versions_are_a_violation() {
    let second = |frame: &Frame<'_>| encode_version(Version::Two, frame);
    let cancel = Frame::Cancel(Cancel { request: RequestId::new(9).unwrap() });
    let mut pair = slow(Version::NEWEST);
    let frames = pair.exchange(
        &[second(&register()), second(&cancel), second(&call(9, b"x")), second(&cancel), second(&Frame::Deregister)]
            .concat(),
    );
    assert_eq!(frames.len(), 2, "{frames:?}");
    // The server may have read the second cancellation before it started the call.
    assert!(frames[0].starts_with("Welcome") && !frames[1].starts_with("Error"), "{frames:?}");
    // The second call waits behind the first, and is cancelled there.
    let calls = [second(&call(1, b"x")), second(&call(9, b"x")), second(&cancel), second(&Frame::Deregister)].concat();
    let frames = pair.exchange(&[second(&register()), calls].concat());
    let reason = format!("{:?}", RejectCode::Cancelled);
    assert!(frames.iter().any(|frame| frame.starts_with("Drop") && frame.contains(&reason)), "{frames:?}");
    let code = format!("{:?}", ErrorCode::Malformed);
    let frames = pair.exchange(&[encode(&register()), second(&call(1, b"x"))].concat());
    assert!(frames.last().unwrap().contains(&code), "{frames:?}");
    pair.assert_serving();
}
