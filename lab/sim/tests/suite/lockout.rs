//! Lock-out: admission control and core allocation react to the same signal, and may hold each
//! other down for ever.
//!
//! Random scenarios search for it with Breakwater that knows of the allocator: there must be none.
//! Findings for other controllers are kept by name, as are scenarios that once locked this one out.
//! `lab/sim/examples/lockout.rs` is the long form, for all pairs.

use crate::common::lockout::{self, RandomScenario, draw, is_locked_out, longest_outage, run, run_with};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;

const AWARE: (&str, &str) = ("breakwater aware", "on");
const SCENARIOS: u64 = 24;

#[test]
fn the_allocator_aware_pool_causes_no_lock_out() {
    for drawn in (1..=SCENARIOS).map(draw) {
        for allocator in lockout::allocators() {
            let report = run(&drawn, AWARE, allocator);
            assert_eq!(report.violations, Vec::<String>::new(), "{allocator}: {drawn:?}");
            let outage = longest_outage(&drawn, &report);
            assert!(!is_locked_out(&drawn, &report), "{allocator}: {outage} round trips in {drawn:?}");
        }
    }
}

/// Checks a scenario that locks out `admission` with `allocator`, but not Breakwater that knows of
/// the allocator.
fn check(name: &str, drawn: &RandomScenario, admission: (&str, &str), allocator: &str) {
    let report = run(drawn, admission, allocator);
    let outage = longest_outage(drawn, &report);
    println!("{name}: {outage} round trips without half of what is possible");
    assert!(is_locked_out(drawn, &report), "{name}: only {outage} round trips in {drawn:?}");
    let report = run(drawn, AWARE, allocator);
    let outage = longest_outage(drawn, &report);
    assert!(!is_locked_out(drawn, &report), "{name}: {outage} round trips with the aware pool in {drawn:?}");
}

/// A pool that has settled for the few cores of a low load does not discover that there are more
/// (seed 3, 16 cores).
#[test]
fn breakwater_by_delay_after_a_low_load() {
    check("breakwater by delay", &draw(3), ("breakwater", "off"), "delay");
}

/// Fewer credits than clients, of which most have nothing to send: the issued credits are not used
/// (seed 12, 2 cores).
#[test]
fn breakwater_with_idle_credits() {
    check("breakwater with idle credits", &draw(12), ("breakwater", "off"), "buffer");
}

/// The pool keeps the cores just busy enough that a utilization range needs no more cores (seed 3).
#[test]
fn breakwater_by_utilization() {
    check("breakwater by utilization", &draw(3), ("breakwater", "off"), "utilization");
}

/// A threshold that changes once per millisecond is a hundred round trips late (seed 1).
#[test]
fn dagor_by_delay() {
    check("dagor by delay", &draw(1), ("dagor", ""), "delay");
}

/// A concurrency limit that was lowered for few cores (seed 10).
#[test]
fn gradient_by_delay() {
    check("gradient by delay", &draw(10), ("gradient", ""), "delay");
}

/// The poster's pool alone: it grows with each granted core, but AQM rejects the requests whose
/// delay the allocator would need to see.
const POSTER: (&str, &str) = ("breakwater aware", "grants");

/// AQM rejects at the same age from which the allocator would grant a core: one core stays alone
/// (seeds 104, 185, 212, 294 and 313; 2 to 16 cores).
#[test]
fn a_backlog_is_not_hidden_from_a_delay_threshold() {
    for seed in [104, 185, 212, 294, 313] {
        check(&format!("delay threshold, seed {seed}"), &draw(seed), POSTER, "delay");
    }
}

/// AQM holds the queue at the age of 10 us, where a tick finds a backlog and the allocator does not
/// yet. An AQM without a second chance for the allocator before the backlog is gone got stuck there
/// (seed 1040, 8 cores).
#[test]
fn a_backlog_exactly_at_the_threshold_gets_a_second_chance() {
    check("at the threshold", &draw(1040), POSTER, "delay");
}

/// Few cores reject most of a burst per round trip, and most of them are idle for the rest of it
/// (seed 78, 32 cores).
#[test]
fn a_burst_waits_for_buffer_cores() {
    check("bursts and buffer cores", &draw(78), POSTER, "buffer");
}

/// The same with one core per request: all cores come for each burst, and park before the next
/// (seed 150, 32 cores).
#[test]
fn a_burst_waits_for_a_core_per_request() {
    check("bursts and a core per request", &draw(150), POSTER, "per-request");
}

/// Next to no load for a hundred round trips parks all cores except one. At full load after that,
/// the server recovers within thirty round trips, with every allocator.
#[test]
fn a_server_recovers_from_parked_cores() {
    let drawn = RandomScenario { cores: 8, loads: vec![1.0, 0.01, 1.2], ..draw(150) };
    for allocator in lockout::allocators() {
        let report = run(&drawn, AWARE, allocator);
        let outage = longest_outage(&drawn, &report);
        assert!(outage <= 30, "{allocator}: {outage} round trips in {drawn:?}");
        let last = report.windows.last().unwrap();
        let possible = f64::from(drawn.cores) * last.length.0 as f64 / 1_000.0;
        assert!(
            last.clients.counts.good as f64 > 0.8 * possible,
            "{allocator}: {} of {possible}",
            last.clients.counts.good
        );
    }
}

/// An allocator that never grants the available cores (4 of 32) does not make the queue grow: the
/// delay exceeds AQM's threshold of 10 us for at most two round trips.
#[test]
fn the_queue_does_not_grow_for_cores_that_are_never_granted() {
    let drawn = RandomScenario { loads: vec![0.1, 1.2], ..draw(78) };
    let limited = run_with(&drawn, AWARE, "static", &[("cores", RawParam::Integer(4))]);
    let (threshold, objective) = (drawn.target * 2, (Nanos(1_000) + drawn.rtt) * 10);
    assert!(limited.waiting.unwrap().p99 <= threshold + drawn.rtt * 2, "{:?}", limited.waiting);
    assert!(limited.waiting.unwrap().p99 < objective.scale(0.5), "{:?} of {objective}", limited.waiting);
}
