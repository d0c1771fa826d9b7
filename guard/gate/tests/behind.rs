//! A service that asks another, simulated: requests come to the front's gate, the front works for them, and asks. The back has one worker,
//! one queue in front of it, and a gate at its head. What is asked is how much of the front's work comes to nothing.

#![cfg(not(loom))]

use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, DecisionReason, Gate, Outcome, Permit, RequestInfo};
use std::collections::VecDeque;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Mean time of a request at the back.
const MEAN_NS: f64 = 1_000_000.0;
/// Reading a request and refusing it costs the back so much.
const REFUSAL_NS: u64 = 20_000;

struct TestRng(u64);

impl TestRng {
    fn exponential(&mut self, mean: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let uniform = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    }
}

/// Whether the front's gate is told of what becomes of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    IsTold,
    IsNot,
}

/// Requests that came after the first second, by class.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    arrived: u64,
    /// Refused by the front's gate.
    rejected_at_gate: u64,
    /// Worked for, and refused by the back.
    wasted: u64,
    /// Time of the back for those that it served.
    served_ns: u64,
}

/// `seconds` of requests at a demand over the back's capacity that depends on the time, of three classes by turns. The fates of each
/// class, and when the front's gate last refused.
fn play(told: Feedback, seconds: u64, demand: fn(f64) -> f64) -> ([RequestCounts; 3], u64) {
    let gate = || Gate::builder(Duration::from_millis(20)).workers(1).build().unwrap();
    let (front, back) = (gate(), gate());
    let (mut draw, mut now, mut free, mut last) = (TestRng(11), 0.0, 0u64, 0);
    let (mut fates, mut pending) = ([RequestCounts::default(); 3], VecDeque::<(u64, Permit, bool)>::new());
    for number in 0.. {
        now += draw.exponential(MEAN_NS / demand(now / 1e9));
        let at = now as u64;
        if at >= seconds * SECOND {
            break;
        }
        while pending.front().is_some_and(|(done, ..)| *done <= at) {
            let (done, mut ticket, refused) = pending.pop_front().unwrap();
            if told == Feedback::IsTold {
                ticket.record_downstream(refused);
            }
            ticket.finish_at(Time(done), if refused { Outcome::Failed } else { Outcome::Completed });
        }
        let class = number % 3;
        let arriving = RequestInfo::default().with_class(Class::new(2 * class as u8)).with_route(7);
        let mut unseen = RequestCounts::default();
        let of = if at >= SECOND { &mut fates[class] } else { &mut unseen };
        of.arrived += 1;
        let ticket = match front.admit_at(Time(at), &arriving.with_age(Duration::ZERO)) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                assert_eq!(refusal.reason, DecisionReason::Downstream, "the front itself has nothing to do");
                (of.rejected_at_gate, last) = (of.rejected_at_gate + 1, at);
                continue;
            }
        };
        // The back's worker reads what has waited longest.
        let begin = free.max(at);
        let waited = Duration::from_nanos(Time(begin).since(Time(at)).0);
        let refused = match back.admit_at(Time(begin), &arriving.with_age(waited)) {
            Ok(mut served) => {
                let service = draw.exponential(MEAN_NS) as u64 + 1;
                free = begin + service;
                served.record_cpu_time(Duration::from_nanos(service));
                served.finish_at(Time(free), Outcome::Completed);
                of.served_ns += service;
                false
            }
            Err(_) => {
                free = begin + REFUSAL_NS;
                of.wasted += 1;
                true
            }
        };
        pending.push_back((free, ticket, refused));
    }
    drop(pending);
    (fates, last)
}

/// Part of the front's work that comes to nothing, and part of the time for which the back serves.
fn outcome(fates: &[RequestCounts; 3], seconds: u64) -> (f64, f64) {
    let sum = |of: fn(&RequestCounts) -> u64| fates.iter().map(of).sum::<u64>() as f64;
    let worked = sum(|of| of.arrived - of.rejected_at_gate);
    (sum(|of| of.wasted) / worked, sum(|of| of.served_ns) / ((seconds - 1) * SECOND) as f64)
}

#[test]
fn what_the_back_would_refuse_is_refused_before_the_front_has_worked_for_it() {
    let twice: fn(f64) -> f64 = |_| 2.0;
    for (demand, at) in [(2.0, twice), (5.0, |_| 5.0)] {
        let by = |told| outcome(&play(told, 10, at).0, 10);
        let ((plain, served_plain), (wasted, served)) = (by(Feedback::IsNot), by(Feedback::IsTold));
        assert!(plain > 0.4, "{demand} x: a front that is not told works in vain: {plain}");
        assert!(wasted <= 0.05, "{demand} x: {wasted} of the front's work");
        assert!(
            served >= 0.9 * served_plain,
            "{demand} x: the back serves for {served} of the time, {served_plain} without"
        );
    }
}

#[test]
fn the_important_are_not_refused_at_the_door_for_the_others() {
    let (fates, _) = play(Feedback::IsTold, 10, |_| 2.0);
    let refused = fates.map(|of| (of.rejected_at_gate + of.wasted) as f64 / of.arrived as f64);
    assert!(refused[0] <= 0.03 && refused[2] >= 0.9, "{refused:?}");
}

#[test]
fn a_back_that_fits_its_demand_costs_hardly_anybody_the_door() {
    let (fates, _) = play(Feedback::IsTold, 20, |_| 0.5);
    let refused = fates.map(|of| of.rejected_at_gate as f64 / of.arrived as f64);
    assert!(refused.iter().all(|share| *share <= 0.001), "{refused:?}");
}

#[test]
fn the_door_opens_when_the_overload_is_over() {
    let (_, last) = play(Feedback::IsTold, 12, |second| if second < 5.0 { 3.0 } else { 0.5 });
    let after = Nanos(last.saturating_sub(5 * SECOND));
    assert!(last > 0 && after <= Nanos::from_secs(4), "{after} after the overload");
}
