//! Admission control and core allocation react to the same signal, and may hold each other down for ever (lock-out). Here
//! random scenarios look for that, with Breakwater that knows of the allocator: there must be none. What was found
//! for others is kept by name. `sim/examples/lockout.rs` is the long form, for all pairs.

#[path = "common/lockout.rs"]
#[allow(dead_code)] // the other program uses the rest
mod lockout;

use lockout::{Drawn, draw, is_locked_out, longest_outage, run};

const AWARE: (&str, &str) = ("breakwater aware", "on");
const SCENARIOS: u64 = 6;

#[test]
fn with_the_allocator_aware_pool_there_is_no_lock_out() {
    for drawn in (1..=SCENARIOS).map(draw) {
        for allocator in lockout::allocators() {
            let report = run(&drawn, AWARE, allocator);
            assert_eq!(report.violations, Vec::<String>::new(), "{allocator}: {drawn:?}");
            let outage = longest_outage(&drawn, &report);
            assert!(!is_locked_out(&drawn, &report), "{allocator}: {outage} round trips in {drawn:?}");
        }
    }
}

/// A scenario in which `admission` with `allocator` locks itself out, and Breakwater that knows of the allocator does not.
fn check(name: &str, drawn: &Drawn, admission: (&str, &str), allocator: &str) {
    let report = run(drawn, admission, allocator);
    let outage = longest_outage(drawn, &report);
    println!("{name}: {outage} round trips without half of what is possible");
    assert!(is_locked_out(drawn, &report), "{name}: only {outage} round trips in {drawn:?}");
    let report = run(drawn, AWARE, allocator);
    let outage = longest_outage(drawn, &report);
    assert!(!is_locked_out(drawn, &report), "{name}: {outage} round trips with the aware pool in {drawn:?}");
}

/// A pool that has settled for the few cores of a low load does not find out that there are more (seed 3, 16 cores).
#[test]
fn breakwater_by_delay_after_a_low_load() {
    check("breakwater by delay", &draw(3), ("breakwater", "off"), "delay");
}

/// Fewer credits than clients, most of which have nothing to send: what is issued is not used (seed 12, 2 cores).
#[test]
fn breakwater_with_idle_credits() {
    check("breakwater with idle credits", &draw(12), ("breakwater", "off"), "buffer");
}

/// The pool keeps the cores just busy enough that a utilization range sees no need for more (seed 3).
#[test]
fn breakwater_by_utilization() {
    check("breakwater by utilization", &draw(3), ("breakwater", "off"), "utilization");
}

/// A threshold that moves once per millisecond is a hundred round trips late (seed 1).
#[test]
fn dagor_by_delay() {
    check("dagor by delay", &draw(1), ("dagor", ""), "delay");
}

/// A concurrency limit that fell for few cores (seed 10).
#[test]
fn gradient_by_delay() {
    check("gradient by delay", &draw(10), ("gradient", ""), "delay");
}
