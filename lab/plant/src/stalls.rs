//! Stalls: how often this machine takes a busy CPU away from a program that only wants to run.

use leeward_core::units::{Nanos, Time};
use leeward_runtime::Clock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shortest gap between two readings of the clock that counts as a stall; interrupts are shorter.
const GAP: Nanos = Nanos::from_micros(20);

/// Time that the thread did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClockGaps {
    pub(crate) duration: Nanos,
    pub(crate) lost: Nanos,
    /// Sum of the squares of the gaps, ns².
    pub(crate) sum_of_squares: u128,
}

/// Watches the clock on the calling thread's CPU for `span`, or until `stop` is set.
pub(crate) fn measure_gaps(span: Nanos, stop: &AtomicBool) -> ClockGaps {
    let clock = Clock::start();
    let begin = clock.now();
    let mut gaps = ClockGaps::default();
    let mut last: Time = begin;
    while last.since(begin) < span && !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let gap = now.since(last);
        if gap >= GAP {
            gaps.lost += gap;
            gaps.sum_of_squares += u128::from(gap.0).pow(2);
        }
        last = now;
    }
    gaps.duration = last.since(begin);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_time_is_part_of_the_measured_time() {
        let gaps = measure_gaps(Nanos::from_millis(5), &AtomicBool::new(false));
        assert!(gaps.duration >= Nanos::from_millis(5) && gaps.lost <= gaps.duration);
        assert!(gaps.sum_of_squares >= u128::from(gaps.lost.0) * u128::from(GAP.0));
        assert_eq!(measure_gaps(Nanos::from_secs(1), &AtomicBool::new(true)).lost, Nanos::ZERO);
    }
}
