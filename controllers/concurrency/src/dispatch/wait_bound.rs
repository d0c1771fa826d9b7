//! How long a request may wait: no longer than the queue needs to keep the backends busy. A queue
//! that never runs empty only delays: whoever is sent now would have been sent as soon with a
//! shorter one. Does not contain the queue.
//!
//! Over an interval, the least length of the queue is the part that stands. While it stands, the
//! bound shrinks; when the queue has run empty, it grows. Its upper end is the objective.

use leeward_core::units::{Nanos, Time};

/// Shortest and longest interval.
const MIN_NS: f64 = 100e6;
const MAX_NS: f64 = 10e9;
/// Answers in an interval, at least: of fewer, the least length is chance.
const ANSWERS: f64 = 48.0;
/// Factors by which the bound changes.
const SHRINK: f64 = 0.85;
const GROW: f64 = 2.0;
/// Least bound, as a share of the objective.
const LEAST: f64 = 0.25;
/// Least queue in requests: with less, the next request might not be there when a place gets free.
const LEAST_REQUESTS: f64 = 4.0;

/// The bound, as a share of the time that a request may take in all.
#[derive(Clone, Debug)]
pub(super) struct WaitBound {
    share: f64,
    begun: Time,
    least: usize,
    has_dispatched: bool,
}

impl Default for WaitBound {
    fn default() -> Self {
        WaitBound { share: 1.0, begun: Time::ZERO, least: usize::MAX, has_dispatched: false }
    }
}

impl WaitBound {
    /// Takes note of the queue's length after a request was taken from it.
    pub(super) fn note(&mut self, queued: usize) {
        self.least = self.least.min(queued);
        self.has_dispatched = true;
    }

    /// Takes note of a place that nobody wants.
    pub(super) fn note_starvation(&mut self) {
        self.least = 0;
    }

    /// Adapts the bound; `rate`: answers per nanosecond.
    pub(super) fn tick(&mut self, now: Time, objective: Nanos, rate: f64) {
        let answers_ns = if rate > 0.0 { ANSWERS / rate } else { MAX_NS };
        let interval_ns = (objective.0 as f64).max(answers_ns).clamp(MIN_NS, MAX_NS);
        if (now.since(self.begun).0 as f64) < interval_ns {
            return;
        }
        if self.least == 0 {
            self.share = (self.share * GROW).min(1.0);
        } else if self.has_dispatched {
            self.share = (self.share * SHRINK).max(LEAST);
        }
        (self.begun, self.least, self.has_dispatched) = (now, usize::MAX, false);
    }

    /// Longest expected wait of a request that may take `left` in all.
    pub(super) fn bound(&self, left: Nanos, rate: f64) -> Nanos {
        let least_ns = if rate > 0.0 { LEAST_REQUESTS / rate } else { 0.0 };
        let bound = left.scale(self.share);
        if self.share < 1.0 { Nanos(bound.0.max(least_ns as u64)) } else { bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_bound_stays_within_its_ends(
            steps in prop::collection::vec((0usize..50, any::<bool>(), 0u64..400, 0.0f64..1e-3), 0..300),
            left_ms in 0u64..2_000,
        ) {
            let (mut bound, mut now) = (WaitBound::default(), Time::ZERO);
            let left = Nanos::from_millis(left_ms);
            for (queued, has_starved, wait_ms, rate) in steps {
                now += Nanos::from_millis(wait_ms);
                bound.note(queued);
                if has_starved {
                    bound.note_starvation();
                }
                bound.tick(now, Nanos::from_millis(50), rate);
                prop_assert!((LEAST..=1.0).contains(&bound.share), "{}", bound.share);
                let (longest, least_ns) = (bound.bound(left, rate), if rate > 0.0 { LEAST_REQUESTS / rate } else { 0.0 });
                prop_assert!(longest.0 as f64 <= (left.0 as f64).max(least_ns) + 1.0);
                prop_assert!(longest.0 as f64 + 1.0 >= left.0 as f64 * LEAST);
            }
        }
    }
}
