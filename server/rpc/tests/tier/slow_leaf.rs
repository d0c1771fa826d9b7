//! A leaf that owes responses: requests that can do without its part neither wait for its credits
//! nor for its responses.

use crate::credits::MODELS;
use crate::fanout_service::{start, threading};
use crate::fixed_window_leaf::FixedWindowLeaf;
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::tier::{Leaves, Options, Tier};
use std::sync::atomic::Ordering;

/// Method of requests for which half of the leaves are worth an answer.
const HALF_IS_ENOUGH: u32 = 11;
/// Method of requests that need all leaves.
const ALL_ARE_NEEDED: u32 = 1;
/// Timeout of requests: two of them in vain make a leaf slow.
const TIMEOUT: Nanos = Nanos::from_millis(200);
/// Limit of rounds for events that come with time.
const ROUNDS: u64 = 1_000;

/// Number of right parts of a response; `None` if the tier rejected the request.
fn parts(client: &mut PipelinedClient, round: u64) -> Option<u8> {
    match client.ask(round, HALF_IS_ENOUGH, b"argument") {
        CallResult::Result(bytes) => Some(bytes[0]),
        CallResult::Drop(_) => None,
        other => panic!("{other:?}"),
    }
}

fn calls_to(tier: &Tier, leaf: usize) -> u64 {
    tier.switch().leaves()[leaf].1.calls
}

fn check(setup: &str, reserves: bool) {
    let servers = [FixedWindowLeaf::start(100), FixedWindowLeaf::start(100), FixedWindowLeaf::start(2)];
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let leaves = Leaves::resolve(servers.iter().map(|leaf| leaf.address.to_string())).unwrap();
    let leaves = leaves.timeout(TIMEOUT).admission(
        &breakwater,
        breakwater.params(&[]).unwrap(),
        Nanos::from_micros(50),
        Nanos::from_millis(20),
    );
    let tier = start(Options::new(leaves.reserve_credits(reserves), threading(setup)));
    let mut client = PipelinedClient::new(&tier);
    let mut until = |wanted: u8| {
        assert!((1..ROUNDS).any(|round| parts(&mut client, round) == Some(wanted)), "{setup}: never {wanted} parts");
    };
    until(3);
    servers[2].is_stalled.store(true, Ordering::SeqCst);
    until(2);

    // Requests that can do without the leaf soon call it no more: its credits are with calls that
    // it owes, and no call waits for one.
    let mut quiet = 0;
    for round in 1..ROUNDS {
        let before = calls_to(&tier, 2);
        let is_quiet = parts(&mut client, round) == Some(2) && calls_to(&tier, 2) == before;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet == 20 {
            break;
        }
    }
    assert_eq!(quiet, 20, "{setup}: each request waits for the slow leaf");
    if !reserves {
        let before = calls_to(&tier, 2);
        assert!(matches!(client.ask(1, ALL_ARE_NEEDED, b"argument"), CallResult::Result(_)), "{setup}");
        assert_eq!(calls_to(&tier, 2), before + 1, "{setup}: a request that needs the leaf calls it");
    }

    servers[2].is_stalled.store(false, Ordering::SeqCst);
    let is_whole = |round| parts(&mut client, round) == Some(3);
    assert!((1..ROUNDS).any(is_whole), "{setup}: not whole any more");
    tier.stop().unwrap();
    servers.into_iter().for_each(FixedWindowLeaf::stop);
}

#[test]
fn requests_do_without_a_slow_leaf() {
    MODELS.into_iter().for_each(|setup| check(setup, false));
}

#[test]
fn requests_reserve_no_credit_of_a_slow_leaf() {
    MODELS.into_iter().for_each(|setup| check(setup, true));
}
