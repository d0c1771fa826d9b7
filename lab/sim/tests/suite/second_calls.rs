//! Second calls at another copy: their gain if a leaf is sometimes late, and their cost if all
//! leaves are overloaded. The rules are those of a real tier (`leeward_core::hedging`).

use crate::common::queueing::erlang_b;
use crate::common::tier::{config, free, run};
use leeward_core::units::Nanos;
use leeward_outcome::{RunOutcome, SecondCallOutcome};
use leeward_sim::config::Arrivals;
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::{SecondCalls, SlowLeaf, Tier};
use leeward_sim::threads::presets::preset;

/// A sync and an async model: in the first, each thread has its own rules; in the second, the
/// response threads of a link share them.
const SETUPS: [&str; 2] = ["SDB1-16", "ADB1-2-2"];

/// Parts with two copies each.
///
/// The first leaf's replies are late by 10 ms in one of 25 cases. The leaf serves half of its part,
/// so two requests in a hundred meet a late reply.
fn tier(setup: &str, parts: u16, second_calls: SecondCalls) -> Tier {
    let mut tier = free(setup, ServiceTime::Lognormal { mean: Nanos::from_micros(320), sigma: 0.1 });
    tier.costs = preset("leeward").unwrap();
    tier.leaves.count = 2 * parts;
    tier.leaves.servers = 1;
    tier.leaves.rtt = Nanos::from_micros(20);
    tier.leaves.tails.copies = 2;
    tier.leaves.tails.second_calls = second_calls;
    tier.leaves.tails.slow = Some(SlowLeaf { leaf: 0, share: 0.04, delay: Nanos::from_millis(10) });
    tier
}

/// A run at `load` times the leaves' capacity.
fn run_at(load: f64, tier: Tier, requests: f64, seed: u64) -> (RunOutcome, SecondCallOutcome) {
    let parts = u64::from(tier.leaves.parts());
    let begin = ServiceTime::Constant(Nanos::from_micros(5));
    let rate = load * tier.capacity(begin.mean()).0;
    let outcome = run(&config(tier, begin, Arrivals::Poisson, rate, requests, seed));
    let second = outcome.threads.and_then(|threads| threads.second_calls).expect("its leaves have copies");
    assert_eq!(second.answered, outcome.counts.completed, "each answer is counted once");
    assert!(second.calls.abs_diff(outcome.counts.completed * parts) < 64 * parts, "{second:?}");
    (outcome, second)
}

#[test]
fn hedged_calls_cut_the_tail_of_a_slow_leaf() {
    for (setup, seed) in SETUPS.into_iter().zip(1..) {
        let (with, second) = run_at(0.3, tier(setup, 16, SecondCalls::Budgeted), 10_000.0, seed);
        let (without, once) = run_at(0.3, tier(setup, 16, SecondCalls::Never), 10_000.0, seed);
        assert!(
            without.latency.p99 > Nanos::from_millis(10),
            "{setup}: two in a hundred are late: {}",
            without.latency.p99
        );
        assert!(with.latency.p99 * 2 < without.latency.p99, "{setup}: {}, {}", with.latency.p99, without.latency.p99);
        // A twentieth, plus the ten that each worker may have saved.
        let most = second.calls / 20 + 10 * 16;
        assert!(second.hedged > 0 && second.hedged <= most, "{setup}: {second:?}");
        assert_eq!((second.retried, second.partial), (0, 0), "{setup}: nothing is dropped");
        assert_eq!((once.hedged, once.retried, once.partial), (0, 0, 0), "{setup}");
    }
}

#[test]
fn hedging_and_retries_stop_when_all_leaves_are_overloaded() {
    for (setup, seed) in SETUPS.into_iter().zip(11..) {
        let drops = |second_calls| {
            let mut tier = tier(setup, 4, second_calls);
            tier.leaves.tails.reject_after = Some(Nanos::from_millis(1));
            tier
        };
        let (_, second) = run_at(1.2, drops(SecondCalls::Budgeted), 20_000.0, seed);
        let (_, once) = run_at(1.2, drops(SecondCalls::Never), 20_000.0, seed);
        assert!(once.partial * 3 > once.answered, "{setup}: a sixth of calls is dropped: {once:?}");
        assert!(second.hedged * 200 <= second.calls, "{setup}: {second:?}");
        assert!(second.retried * 200 <= second.calls, "{setup}: {second:?}");
    }
}

/// If rejections are rare, the other copy serves most of the rejected calls.
#[test]
fn rejected_calls_are_retried_within_the_budget() {
    let mut tier = tier("ADB1-2-2", 4, SecondCalls::Budgeted);
    tier.leaves.tails.slow = None;
    // Tolerance for a call that waits a little: below capacity a rejection is rare, and the other
    // copy mostly accepts.
    tier.leaves.tails.reject_after = Some(Nanos::from_micros(50));
    let (_, second) = run_at(0.15, tier.clone(), 20_000.0, 3);
    assert!(second.retried > 0 && second.retried * 10 <= second.calls + 100, "{second:?}");
    tier.leaves.tails.second_calls = SecondCalls::Never;
    let (_, once) = run_at(0.15, tier, 20_000.0, 3);
    assert!(second.partial < once.partial, "{second:?} {once:?}");
}

/// A leaf without a queue loses calls according to Erlang's formula.
#[test]
fn losses_of_a_leaf_without_a_queue_match_erlang_b() {
    let mut tier = free("AIB1-0-1", ServiceTime::Exponential(Nanos::from_micros(100)));
    tier.leaves.servers = 4;
    tier.leaves.tails.reject_after = Some(Nanos::ZERO);
    let report = run(&config(tier, ServiceTime::Constant(Nanos(0)), Arrivals::Poisson, 30_000.0, 100_000.0, 9));
    let second = report.threads.and_then(|threads| threads.second_calls).unwrap();
    let (lost, expected) = (second.partial as f64 / second.answered as f64, erlang_b(4, 3.0));
    assert!((lost / expected - 1.0).abs() < 0.03, "{lost}, Erlang {expected}");
}
