//! Share of time in which a leaf keeps its callers waiting too long, and whether it is slow beside
//! the other leaves.
//!
//! A pause of a leaf is no fault, and calls in flight at the same time see the same pause. So time
//! counts here, and not calls: overlapping waits count once. Does not contain the length of a wait
//! that is too long ([`LeafTimeouts`](super::LeafTimeouts)), or the effect of a slow leaf.

use crate::units::{Nanos, Time};

/// Half-life of recorded stalls.
const HALF_LIFE: Nanos = Nanos::from_millis(500);
/// A leaf that stalls all the time has this stalled time: HALF_LIFE / ln 2.
const SATURATED: Nanos = Nanos::from_micros(721_348);
/// A leaf is slow from this share of stalled time, as a divisor.
///
/// A pause of 50 ms makes a share of 7 %; five pauses in half a second are not pauses any more.
const SLOW_DIVISOR: u64 = 4;
/// A slow leaf stalls at least this many times as long as the typical leaf. Otherwise the load is
/// the cause, and leaving out one leaf does not help.
const SLOW_FACTOR: u64 = 2;

/// Stalled time of one leaf, halved per half-life.
#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    stalled: Nanos,
    /// End of the last recorded stall; `stalled` is valid at this time.
    until: Time,
}

impl Stalls {
    /// Stalled time at `now`: halved per half-life, linear within one.
    fn at(&self, now: Time) -> u64 {
        let elapsed = now.since(self.until).0;
        let halved = self.stalled.0.checked_shr((elapsed / HALF_LIFE.0).min(63) as u32).unwrap_or(0);
        // Below 2⁶⁴: the stalled time is at most `SATURATED`.
        halved - halved * (elapsed % HALF_LIFE.0) / (2 * HALF_LIFE.0)
    }

    fn record(&mut self, from: Time, to: Time) {
        if to <= self.until {
            return;
        }
        let fresh = to.since(from.max(self.until)).0;
        self.stalled = Nanos((self.at(to) + fresh.min(SATURATED.0)).min(SATURATED.0));
        self.until = to;
    }
}

/// Stalled time of all leaves of a tier.
///
/// ```
/// use leeward_core::hedging::SlowLeaves;
/// use leeward_core::units::{Nanos, Time};
///
/// let mut leaves = SlowLeaves::new(4);
/// let mut now = Time::ZERO;
/// for _ in 0..10 {
///     // One leaf runs for 5 ms of each 50 ms.
///     leaves.record_stall(2, now, now + Nanos::from_millis(45));
///     now = now + Nanos::from_millis(50);
/// }
/// assert_eq!(leaves.slow_at(now), [false, false, true, false]);
/// ```
#[derive(Clone, Debug)]
pub struct SlowLeaves {
    stalls: Vec<Stalls>,
    /// Memory for [`SlowLeaves::slow_at`], so that requests allocate nothing.
    sorted: Vec<u64>,
    slow: Vec<bool>,
}

impl SlowLeaves {
    /// Creates the state of `leaves` leaves, none of which has stalled.
    pub fn new(leaves: usize) -> Self {
        SlowLeaves { stalls: vec![Stalls::default(); leaves], sorted: vec![0; leaves], slow: vec![false; leaves] }
    }

    /// Records that a caller of a leaf waited too long, from `from` to `to`.
    pub fn record_stall(&mut self, leaf: usize, from: Time, to: Time) {
        if let Some(stalls) = self.stalls.get_mut(leaf) {
            stalls.record(from, to);
        }
    }

    /// Whether each leaf is slow: it stalls for a quarter of the time, and for twice as long as the
    /// typical leaf.
    pub fn slow_at(&mut self, now: Time) -> &[bool] {
        let stalled = self.stalls.iter().map(|stalls| stalls.at(now));
        self.sorted.iter_mut().zip(stalled.clone()).for_each(|(kept, stalled)| *kept = stalled);
        self.sorted.sort_unstable();
        // The faster of two: a slow leaf among two is not typical. A leaf alone is.
        let typical = self.sorted.get(self.sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        let least = (SATURATED.0 / SLOW_DIVISOR).max(typical * SLOW_FACTOR);
        self.slow.iter_mut().zip(stalled).for_each(|(is_slow, stalled)| *is_slow = stalled >= least);
        &self.slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn at(ms: u64) -> Time {
        Time::ZERO + MS(ms)
    }

    fn slow(leaves: &mut SlowLeaves, now: Time) -> Vec<usize> {
        leaves.slow_at(now).iter().enumerate().filter(|(_, is_slow)| **is_slow).map(|(leaf, _)| leaf).collect()
    }

    #[test]
    fn a_leaf_that_stalls_most_of_the_time_is_slow_until_it_recovers() {
        let mut leaves = SlowLeaves::new(4);
        let mut detected = None;
        for period in 0..40 {
            leaves.record_stall(1, at(50 * period), at(50 * period + 45));
            if detected.is_none() && !slow(&mut leaves, at(50 * period + 45)).is_empty() {
                detected = Some(period);
            }
        }
        assert!(detected.is_some_and(|period| (3..10).contains(&period)), "{detected:?}");
        assert_eq!((slow(&mut leaves, at(2_000)), slow(&mut leaves, at(2_500))), (vec![1], vec![1]));
        assert_eq!(slow(&mut leaves, at(3_500)), [], "it has answered for a second and a half");
    }

    #[test]
    fn a_pause_makes_no_leaf_slow() {
        let mut leaves = SlowLeaves::new(4);
        for pause in 0..20 {
            let began = at(pause * 500);
            // All calls in flight see the same pause.
            (0..30).for_each(|call| leaves.record_stall(0, began + MS(call), began + MS(50)));
            assert_eq!(slow(&mut leaves, began + MS(50)), [], "pause {pause}");
        }
    }

    #[test]
    fn an_overload_of_all_leaves_makes_none_slow() {
        let mut leaves = SlowLeaves::new(4);
        for period in 0..40 {
            (0..4).for_each(|leaf| leaves.record_stall(leaf, at(50 * period), at(50 * period + 40)));
        }
        assert_eq!(slow(&mut leaves, at(2_000)), []);
        // Of two leaves, the faster one is typical. One leaf alone can't be slow beside others.
        let mut two = SlowLeaves::new(2);
        two.record_stall(1, at(0), at(1_000));
        assert_eq!(slow(&mut two, at(1_000)), [1]);
        let mut one = SlowLeaves::new(1);
        one.record_stall(0, at(0), at(1_000));
        assert_eq!(slow(&mut one, at(1_000)), []);
    }

    #[test]
    fn extreme_times_are_accepted() {
        let mut leaves = SlowLeaves::new(2);
        leaves.record_stall(7, at(0), Time(u64::MAX));
        leaves.record_stall(0, at(5), at(1));
        leaves.record_stall(0, at(0), Time(u64::MAX));
        assert_eq!((slow(&mut leaves, Time(u64::MAX)), slow(&mut leaves, at(0))), (vec![0], vec![0]));
        assert!(SlowLeaves::new(0).slow_at(at(1)).is_empty());
    }
}
