//! Control frames, which are all frames but calls: a flood does not delay other clients, and
//! statistics queries need no credit.

use crate::support::{PairExt, call, encode, pair, pair_with, relaxed_slo};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_pair::{Pair, PairConfig, RequestOutcome, echo};
use leeward_wire::{Budget, Call, CreditId, Demand, Encoder, Frame, Method, PayloadLimit, Ping, RequestId, Timestamp};

/// Scans as rare as the engine's.
fn engine_config() -> PairConfig {
    PairConfig { scan_interval: Nanos::from_millis(100), ..PairConfig::default() }
}

/// So many copies of a frame.
fn flood(frame: &Frame<'_>, count: usize) -> Vec<u8> {
    encode(frame).repeat(count)
}

/// Pongs that a raw client receives within `span`.
fn count_pongs(pair: &mut Pair, client: leeward_pair::ClientId, span: Nanos) -> usize {
    let until = pair.now() + span;
    let mut answers = 0;
    while pair.now() < until {
        pair.run_for(Nanos::from_millis(1));
        answers += std::iter::from_fn(|| pair.try_receive(client)).filter(|frame| frame.starts_with("Pong")).count();
    }
    answers
}

#[test]
fn a_flood_of_control_frames_is_read_in_small_portions() {
    for frame in [Frame::Ping(Ping { timestamp: Timestamp(3) }), Frame::Demand(Demand { demand: 0 })] {
        let mut pair = pair("breakwater", engine_config(), echo(Nanos::from_micros(10)));
        let client = pair.connect_registered();
        pair.send_bytes(client, &flood(&frame, 100_000));
        let answers = count_pongs(&mut pair, client, Nanos::from_secs(2));
        // A thousand per scan, and ten scans per second.
        assert!(answers <= 25_000, "{answers}");
        if matches!(frame, Frame::Ping(_)) {
            assert!(answers >= 10_000, "a flood is read on: {answers}");
        }
        pair.assert_serving();
    }
}

#[test]
fn pings_in_separate_packets_are_all_answered() {
    let mut pair = pair("breakwater", engine_config(), echo(Nanos::from_micros(10)));
    let client = pair.connect_registered();
    let mut answers = 0;
    for _ in 0..10_000 {
        pair.send_frame(client, &Frame::Ping(Ping { timestamp: Timestamp(3) }));
        answers += count_pongs(&mut pair, client, Nanos::from_micros(100));
    }
    answers += count_pongs(&mut pair, client, Nanos::from_secs(1));
    assert_eq!(answers, 10_000);
}

#[test]
fn a_client_that_announces_every_change_is_not_held_back() {
    let params = [("demand", RawParam::Text("synchronization".into()))];
    let mut pair = pair_with("breakwater", &params, relaxed_slo(), engine_config(), echo(Nanos::from_micros(10)));
    let client = pair.connect();
    for _ in 0..20_000 {
        pair.submit(client, b"x");
        pair.run_for(Nanos::from_micros(100));
    }
    pair.wait_until("all have their ends", |pair| pair.open_requests(client) == 0);
    if crate::DATAGRAMS.is_some() {
        // A loss costs a time-out, during which requests wait or expire.
        return pair.assert_no_violation();
    }
    let completed =
        pair.outcomes(client).iter().flatten().filter(|end| matches!(end, RequestOutcome::Completed(_))).count();
    assert_eq!(completed, 20_000);
    // Ten thousand per second: pauses until the next scan would add up to twenty seconds.
    assert!(pair.now() < Time(2_200_000_000), "{:?}", pair.now());
}

fn statistics_call(request: u64) -> Frame<'static> {
    Frame::Call(Call {
        request: RequestId::new(request).unwrap(),
        timestamp: Timestamp(7),
        credit: CreditId::NONE,
        method: Method::STATISTICS,
        demand: 0,
        budget: Budget::UNLIMITED,
        priority: Priority::HIGHEST,
        payload: &[],
    })
}

#[test]
fn statistics_calls_need_no_credit_and_grant_none() {
    let mut pair = pair("breakwater", engine_config(), echo(Nanos::from_millis(10)));
    let client = pair.connect_registered();
    for request in 1..=500 {
        pair.send_frame(client, &statistics_call(request));
        assert!(pair.receive_answer(client).unwrap().starts_with("Response"));
    }
    assert_eq!(pair.counts().received, 0, "the controller knows nothing of them");
    // Windows bind as before.
    let burst: Vec<u8> = (501..=900).flat_map(|request| encode(&call(request, b""))).collect();
    pair.send_bytes(client, &burst);
    pair.wait_until("it is refused", |pair| pair.counts().without_credit > 50);
    assert!(pair.counts().received - pair.counts().without_credit < 50, "{:?}", pair.counts());
}

#[test]
fn a_long_call_without_credit_is_refused_before_it_is_received() {
    let mut pair = pair("breakwater", engine_config(), echo(Nanos::from_secs(1)));
    let client = pair.connect_registered();
    // More calls than its window can permit.
    let used: Vec<u8> = (1..=40).flat_map(|request| encode(&call(request, b""))).collect();
    pair.send_bytes(client, &used);
    pair.wait_until("its credit is used up", |pair| pair.counts().without_credit > 0);
    let before = pair.counts().without_credit;
    let payload = vec![7; 1 << 20];
    let mut long = Vec::new();
    Encoder::new(PayloadLimit::DEFAULT).append(&call(41, &payload), &mut long).unwrap();
    pair.send_bytes(client, &long[..32 * 1024]);
    pair.wait_until("it is refused by its beginning", |pair| pair.counts().without_credit == before + 1);
    // The server skips the rest of the call, and decodes the frames after it.
    pair.send_bytes(client, &long[32 * 1024..]);
    pair.send_frame(client, &statistics_call(42));
    let mut frame = String::new();
    while !(frame.starts_with("Response") && frame.contains("42")) {
        frame = pair.receive(client).expect("what follows is answered");
    }
}
