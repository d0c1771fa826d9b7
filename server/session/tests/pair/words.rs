//! Words of clients besides their calls: nobody else waits for it, and questions about the server need no credit.

use crate::support::{Waits, bytes, call, calm, pair, pair_with};
use leeward_core::params::Raw;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_pair::{Ended, Pair, PairConfig, echo};
use leeward_wire::{Budget, Call, CreditId, Demand, Encoder, Frame, Method, PayloadLimit, Ping, RequestId, Timestamp};

/// Sweeps as rare as the engine's.
fn as_the_engine() -> PairConfig {
    PairConfig { sweep: Nanos::from_millis(100), ..PairConfig::default() }
}

/// So many frames in one go.
fn flood(frame: &Frame<'_>, count: usize) -> Vec<u8> {
    bytes(frame).repeat(count)
}

/// Answers that a raw client has got within `span`.
fn answered(pair: &mut Pair, client: leeward_pair::ClientId, span: Nanos) -> usize {
    let until = pair.now() + span;
    let mut answers = 0;
    while pair.now() < until {
        pair.run_for(Nanos::from_millis(1));
        answers += std::iter::from_fn(|| pair.heard(client)).filter(|heard| heard.starts_with("Pong")).count();
    }
    answers
}

#[test]
fn a_flood_of_words_is_read_a_little_at_a_time() {
    for word in [Frame::Ping(Ping { timestamp: Timestamp(3) }), Frame::Demand(Demand { demand: 0 })] {
        let mut pair = pair("breakwater", as_the_engine(), echo(Nanos::from_micros(10)));
        let client = pair.registered();
        pair.say_bytes(client, &flood(&word, 100_000));
        let answers = answered(&mut pair, client, Nanos::from_secs(2));
        // A thousand per sweep, and there are ten sweeps in a second.
        assert!(answers <= 25_000, "{answers}");
        if matches!(word, Frame::Ping(_)) {
            assert!(answers >= 10_000, "a flood is read on: {answers}");
        }
        pair.is_well();
    }
}

#[test]
fn words_in_single_packets_are_all_answered() {
    let mut pair = pair("breakwater", as_the_engine(), echo(Nanos::from_micros(10)));
    let client = pair.registered();
    let mut answers = 0;
    for _ in 0..10_000 {
        pair.say(client, &Frame::Ping(Ping { timestamp: Timestamp(3) }));
        answers += answered(&mut pair, client, Nanos::from_micros(100));
    }
    answers += answered(&mut pair, client, Nanos::from_secs(1));
    assert_eq!(answers, 10_000);
}

#[test]
fn a_client_that_announces_every_change_is_not_held_back() {
    let params = [("demand", Raw::Text("synchronization".into()))];
    let mut pair = pair_with("breakwater", &params, calm(), as_the_engine(), echo(Nanos::from_micros(10)));
    let client = pair.connect();
    for _ in 0..20_000 {
        pair.submit(client, b"x");
        pair.run_for(Nanos::from_micros(100));
    }
    pair.eventually("all have their ends", |pair| pair.open_requests(client) == 0);
    if crate::DATAGRAMS.is_some() {
        // A loss costs a time-out, for which requests wait or expire.
        return pair.is_lawful();
    }
    let completed = pair.ends(client).iter().flatten().filter(|end| matches!(end, Ended::Completed(_))).count();
    assert_eq!(completed, 20_000);
    // Ten thousand a second: a pause of a sweep would show as twenty seconds.
    assert!(pair.now() < Time(2_200_000_000), "{:?}", pair.now());
}

fn question(request: u64) -> Frame<'static> {
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
fn questions_about_the_server_need_no_credit_and_give_none() {
    let mut pair = pair("breakwater", as_the_engine(), echo(Nanos::from_millis(10)));
    let client = pair.registered();
    for request in 1..=500 {
        pair.say(client, &question(request));
        assert!(pair.answer(client).unwrap().starts_with("Response"));
    }
    assert_eq!(pair.counts().received, 0, "the controller knows nothing of them");
    // Windows bind as before.
    let burst: Vec<u8> = (501..=900).flat_map(|request| bytes(&call(request, b""))).collect();
    pair.say_bytes(client, &burst);
    pair.eventually("it is refused", |pair| pair.counts().without_credit > 50);
    assert!(pair.counts().received - pair.counts().without_credit < 50, "{:?}", pair.counts());
}

#[test]
fn a_long_call_without_credit_is_refused_before_it_is_received() {
    let mut pair = pair("breakwater", as_the_engine(), echo(Nanos::from_secs(1)));
    let client = pair.registered();
    // All that its window may be, and more.
    let used: Vec<u8> = (1..=40).flat_map(|request| bytes(&call(request, b""))).collect();
    pair.say_bytes(client, &used);
    pair.eventually("its credit is used up", |pair| pair.counts().without_credit > 0);
    let before = pair.counts().without_credit;
    let payload = vec![7; 1 << 20];
    let mut long = Vec::new();
    Encoder::new(PayloadLimit::DEFAULT).append(&call(41, &payload), &mut long).unwrap();
    pair.say_bytes(client, &long[..32 * 1024]);
    pair.eventually("it is refused by its beginning", |pair| pair.counts().without_credit == before + 1);
    // The rest is passed over, and what stands behind it is understood.
    pair.say_bytes(client, &long[32 * 1024..]);
    pair.say(client, &question(42));
    let mut heard = String::new();
    while !(heard.starts_with("Response") && heard.contains("42")) {
        heard = pair.hear(client).expect("what follows is answered");
    }
}
