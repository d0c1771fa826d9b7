//! A simulated service that asks another. Requests arrive at the front's gate; the front works for
//! them and asks the back. The back has one worker, one queue and a gate at the queue's head. The
//! tests measure the share of the front's work that is wasted.

#![cfg(not(loom))]

use crate::random::TestRng;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, DecisionReason, Gate, Outcome, Permit, RequestInfo};
use std::collections::VecDeque;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Mean service time of a request at the back.
const MEAN_NS: f64 = 1_000_000.0;
/// Cost for the back of reading and rejecting a request.
const REFUSAL_NS: u64 = 20_000;

/// Whether the front reports the back's rejections to its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    On,
    Off,
}

/// Requests that arrived after the first second, of one class.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    arrived: u64,
    /// Requests rejected by the front's gate.
    rejected_at_gate: u64,
    /// Requests that the front worked for and the back rejected.
    wasted: u64,
    /// Service time of the back for accepted requests, in ns.
    served_ns: u64,
}

/// Simulates `seconds` of requests of three classes in turn; `demand` is relative to the back's
/// capacity.
///
/// Returns the counts of each class, and the time of the front gate's last rejection.
fn simulate(feedback: Feedback, seconds: u64, demand: fn(f64) -> f64) -> ([RequestCounts; 3], u64) {
    let gate = || Gate::builder(Duration::from_millis(20)).workers(1).build().unwrap();
    let (front, back) = (gate(), gate());
    let (mut draw, mut now, mut free, mut last) = (TestRng(11), 0.0, 0u64, 0);
    let (mut counts, mut pending) = ([RequestCounts::default(); 3], VecDeque::<(u64, Permit, bool)>::new());
    for number in 0.. {
        now += draw.exponential(MEAN_NS / demand(now / 1e9));
        let at = now as u64;
        if at >= seconds * SECOND {
            break;
        }
        while pending.front().is_some_and(|(done, ..)| *done <= at) {
            let (done, mut permit, rejected) = pending.pop_front().unwrap();
            if feedback == Feedback::On {
                permit.record_downstream(rejected);
            }
            permit.finish_at(Time(done), if rejected { Outcome::Failed } else { Outcome::Completed });
        }
        let class = number % 3;
        let info = RequestInfo::default().with_class(Class::new(2 * class as u8)).with_route(7);
        let mut unseen = RequestCounts::default();
        let class_counts = if at >= SECOND { &mut counts[class] } else { &mut unseen };
        class_counts.arrived += 1;
        let permit = match front.admit_at(Time(at), &info.with_age(Duration::ZERO)) {
            Ok(permit) => permit,
            Err(rejection) => {
                assert_eq!(rejection.reason, DecisionReason::Downstream, "the front itself has nothing to do");
                (class_counts.rejected_at_gate, last) = (class_counts.rejected_at_gate + 1, at);
                continue;
            }
        };
        // The back's worker reads the oldest request.
        let begin = free.max(at);
        let waited = Duration::from_nanos(Time(begin).since(Time(at)).0);
        let rejected = match back.admit_at(Time(begin), &info.with_age(waited)) {
            Ok(mut served) => {
                let service = draw.exponential(MEAN_NS) as u64 + 1;
                free = begin + service;
                served.record_cpu_time(Duration::from_nanos(service));
                served.finish_at(Time(free), Outcome::Completed);
                class_counts.served_ns += service;
                false
            }
            Err(_) => {
                free = begin + REFUSAL_NS;
                class_counts.wasted += 1;
                true
            }
        };
        pending.push_back((free, permit, rejected));
    }
    drop(pending);
    (counts, last)
}

/// Returns the wasted share of the front's work, and the share of time in which the back serves.
fn outcome(counts: &[RequestCounts; 3], seconds: u64) -> (f64, f64) {
    let sum = |count: fn(&RequestCounts) -> u64| counts.iter().map(count).sum::<u64>() as f64;
    let worked = sum(|count| count.arrived - count.rejected_at_gate);
    (sum(|count| count.wasted) / worked, sum(|count| count.served_ns) / ((seconds - 1) * SECOND) as f64)
}

#[test]
fn requests_the_back_would_reject_are_rejected_before_the_front_works() {
    let twice: fn(f64) -> f64 = |_| 2.0;
    for (demand, at) in [(2.0, twice), (5.0, |_| 5.0)] {
        let outcome_with = |feedback| outcome(&simulate(feedback, 10, at).0, 10);
        let ((plain, served_plain), (wasted, served)) = (outcome_with(Feedback::Off), outcome_with(Feedback::On));
        assert!(plain > 0.4, "{demand} x: a front that is not told works in vain: {plain}");
        assert!(wasted <= 0.05, "{demand} x: {wasted} of the front's work");
        assert!(
            served >= 0.9 * served_plain,
            "{demand} x: the back serves for {served} of the time, {served_plain} without"
        );
    }
}

#[test]
fn important_requests_are_not_rejected_in_favour_of_others() {
    let (counts, _) = simulate(Feedback::On, 10, |_| 2.0);
    let rejected = counts.map(|count| (count.rejected_at_gate + count.wasted) as f64 / count.arrived as f64);
    assert!(rejected[0] <= 0.03 && rejected[2] >= 0.9, "{rejected:?}");
}

#[test]
fn a_back_below_capacity_causes_almost_no_rejections_at_the_gate() {
    let (counts, _) = simulate(Feedback::On, 20, |_| 0.5);
    let rejected = counts.map(|count| count.rejected_at_gate as f64 / count.arrived as f64);
    assert!(rejected.iter().all(|share| *share <= 0.001), "{rejected:?}");
}

#[test]
fn rejections_at_the_gate_end_soon_after_the_overload() {
    let (_, last) = simulate(Feedback::On, 12, |second| if second < 5.0 { 3.0 } else { 0.5 });
    let after = Nanos(last.saturating_sub(5 * SECOND));
    assert!(last > 0 && after <= Nanos::from_secs(4), "{after} after the overload");
}
