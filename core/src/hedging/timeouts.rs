//! Timeout of a request's calls to leaves, where none is configured. While no leaf is slow, the
//! timeout covers a pause of any of them. Otherwise it is the time that the objective leaves, and
//! longer only if most leaves take longer by nature. Does not contain the choice of a leaf, or the
//! effect of a missing response.

use crate::units::Nanos;

/// Timeout before any leaf has answered, and the longest one that follows from the leaves' round
/// trips.
const INITIAL_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Part of the remaining objective for leaves, in eighths; the last eighth is for the tier's work
/// on the responses.
const EIGHTHS: u64 = 7;
/// Factor over the typical round trip from which a leaf is late, for any objective.
const SLOW_FACTOR: u64 = 4;
/// Pause that a request waits through if no leaf is slow: a leaf's machine may take the CPU away,
/// or the leaf may collect garbage.
const PAUSE: Nanos = Nanos::from_millis(50);
/// Responses between two computations of the typical round trip.
const REFRESH_INTERVAL: u32 = 32;
/// Weight of an average's newest value, as a divisor.
const WEIGHT: u64 = 8;

/// Round trips of leaves, and the timeouts that follow from them.
///
/// ```
/// use leeward_core::hedging::LeafTimeouts;
/// use leeward_core::units::Nanos;
///
/// let mut timeouts = LeafTimeouts::new(None, Nanos::from_millis(4), 3);
/// (0..3).for_each(|leaf| timeouts.record_response(leaf, Nanos::from_micros(200)));
/// assert_eq!(timeouts.timeout(Nanos::ZERO), Nanos::from_millis(50));
/// // One leaf becomes slow. A request that spent a millisecond waits for 7/8 of the rest.
/// (0..64).for_each(|_| timeouts.record_response(2, Nanos::from_millis(30)));
/// assert_eq!(timeouts.timeout(Nanos::from_millis(1)), Nanos::from_micros(2_625));
/// ```
#[derive(Clone, Debug)]
pub struct LeafTimeouts {
    configured: Option<Nanos>,
    objective: Nanos,
    /// Average round trip of each leaf; zero while it has not answered.
    averages: Vec<Nanos>,
    /// Typical (median) round trip of the leaves that have answered; zero while none has.
    typical: Nanos,
    /// Whether any leaf's average exceeds the timeout for slow leaves.
    is_any_slow: bool,
    answers: u32,
}

impl LeafTimeouts {
    /// Creates the timeouts for `leaves` leaves, none of which has answered. `configured` fixes the
    /// timeout; otherwise it follows from the tier's objective.
    pub fn new(fixed: Option<Nanos>, objective: Nanos, leaves: usize) -> Self {
        LeafTimeouts {
            configured: fixed,
            objective,
            averages: vec![Nanos::ZERO; leaves],
            typical: Nanos::ZERO,
            is_any_slow: false,
            answers: 0,
        }
    }

    /// Records a wait for a leaf that timed out. The tier may never see the late response, so the
    /// leaf counts as twice as slow as the wait, unless its average is higher. Otherwise only quick
    /// responses would count.
    pub fn record_timeout(&mut self, leaf: usize, waited: Nanos) {
        let at_least = waited * 2;
        if self.averages.get(leaf).is_some_and(|average| *average < at_least) {
            self.record_response(leaf, at_least);
        }
    }

    /// Forgets a leaf that is gone: its round trips say nothing about the others.
    pub fn forget(&mut self, leaf: usize) {
        if let Some(average) = self.averages.get_mut(leaf).filter(|average| **average > Nanos::ZERO) {
            *average = Nanos::ZERO;
            self.refresh();
        }
    }

    /// Records a response, in time or late.
    pub fn record_response(&mut self, leaf: usize, round_trip: Nanos) {
        let Some(average) = self.averages.get_mut(leaf).filter(|_| self.configured.is_none()) else { return };
        let is_first = *average == Nanos::ZERO;
        let before = if is_first { round_trip.0 } else { average.0 };
        *average = Nanos((before - before / WEIGHT + round_trip.0 / WEIGHT).max(1));
        self.answers += 1;
        if is_first || self.answers >= REFRESH_INTERVAL {
            self.answers = 0;
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let mut known: Vec<Nanos> = self.averages.iter().copied().filter(|average| *average > Nanos::ZERO).collect();
        // The faster of two: a slow leaf among two is not typical.
        let middle = known.len().saturating_sub(1) / 2;
        self.typical = if known.is_empty() { Nanos::ZERO } else { *known.select_nth_unstable(middle).1 };
        let max = self.slow_leaf_timeout(Nanos::ZERO);
        self.is_any_slow = known.iter().any(|average| *average > max);
    }

    /// Longest wait of a request that has spent `spent` of its objective before its calls.
    pub fn timeout(&self, spent: Nanos) -> Nanos {
        match self.configured {
            Some(configured) => configured,
            None if self.typical == Nanos::ZERO => INITIAL_TIMEOUT,
            None if self.is_any_slow => self.slow_leaf_timeout(spent),
            None => self.slow_leaf_timeout(spent).max(PAUSE),
        }
    }

    /// Longest wait for a slow leaf of a request that can do without it: what is late for any
    /// objective, at most. `spent` as for [`LeafTimeouts::timeout`].
    pub fn optional_timeout(&self, spent: Nanos) -> Nanos {
        let left = Nanos(self.objective.saturating_sub(spent).0 / 8 * EIGHTHS);
        if self.typical == Nanos::ZERO { left } else { left.min(self.typical * SLOW_FACTOR) }
    }

    /// Wait from which a leaf keeps its callers waiting too long.
    pub fn stall_timeout(&self) -> Nanos {
        self.slow_leaf_timeout(Nanos::ZERO)
    }

    /// Timeout where a leaf is slow.
    fn slow_leaf_timeout(&self, spent: Nanos) -> Nanos {
        let left = self.objective.saturating_sub(spent);
        Nanos(left.0 / 8 * EIGHTHS).max((self.typical * SLOW_FACTOR).min(INITIAL_TIMEOUT))
    }

    /// Time without a message after which a leaf with outstanding calls counts as failed.
    pub fn failure_timeout(&self) -> Nanos {
        if self.configured.is_some() { self.timeout(Nanos::ZERO) } else { self.timeout(Nanos::ZERO).max(PAUSE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn answered(timeouts: &mut LeafTimeouts, times: usize, takes: &[u64]) {
        for _ in 0..times {
            takes.iter().enumerate().for_each(|(leaf, ms)| timeouts.record_response(leaf, MS(*ms)));
        }
    }

    #[test]
    fn a_configured_timeout_is_kept() {
        let mut timeouts = LeafTimeouts::new(Some(MS(50)), MS(4), 2);
        answered(&mut timeouts, 100, &[100, 100]);
        assert_eq!((timeouts.timeout(MS(3)), timeouts.failure_timeout()), (MS(50), MS(50)));
    }

    #[test]
    fn one_slow_leaf_does_not_raise_the_timeout() {
        let mut timeouts = LeafTimeouts::new(None, MS(8), 4);
        assert_eq!(timeouts.timeout(Nanos::ZERO), INITIAL_TIMEOUT, "nothing is known");
        answered(&mut timeouts, 100, &[1, 1, 1, 1]);
        assert_eq!(timeouts.timeout(Nanos::ZERO), PAUSE, "none is slow");
        answered(&mut timeouts, 100, &[1, 200, 1, 1]);
        assert_eq!((timeouts.timeout(Nanos::ZERO), timeouts.failure_timeout()), (MS(7), PAUSE));
        assert_eq!(timeouts.timeout(MS(9)), MS(4), "what is usual has time even when the objective is over");
        // The slow one of two leaves is not waited for either.
        let mut timeouts = LeafTimeouts::new(None, MS(8), 2);
        answered(&mut timeouts, 100, &[200, 1]);
        assert_eq!(timeouts.timeout(Nanos::ZERO), MS(7));
    }

    #[test]
    fn uniformly_slow_leaves_raise_the_timeout() {
        let mut timeouts = LeafTimeouts::new(None, MS(1), 3);
        answered(&mut timeouts, 100, &[20, 20, 20]);
        let timeout = timeouts.timeout(Nanos::ZERO);
        assert!(timeout > MS(70) && timeout <= MS(80), "{timeout}");
        // All leaves have become slower: late responses raise the timeout, and quick ones lower it
        // again.
        answered(&mut timeouts, 40, &[100, 100, 100]);
        assert!(timeouts.timeout(Nanos::ZERO) > MS(300));
        answered(&mut timeouts, 100, &[1, 1, 1]);
        assert_eq!(timeouts.timeout(Nanos::ZERO), PAUSE);
    }

    #[test]
    fn missing_responses_raise_the_timeout() {
        // All leaves take longer than the timeout, so no response is seen.
        let mut timeouts = LeafTimeouts::new(None, MS(1), 2);
        answered(&mut timeouts, 100, &[1, 1]);
        for _ in 0..20 {
            let timeout = timeouts.timeout(Nanos::ZERO);
            if timeout < MS(60) {
                (0..2).for_each(|leaf| timeouts.record_timeout(leaf, timeout));
            }
        }
        assert!(timeouts.timeout(Nanos::ZERO) >= MS(60), "they are waited for again");
        // A leaf without a response in time stays slow.
        let mut timeouts = LeafTimeouts::new(None, MS(8), 3);
        answered(&mut timeouts, 100, &[1, 1, 1]);
        for _ in 0..200 {
            answered(&mut timeouts, 1, &[1, 1]);
            let timeout = timeouts.timeout(Nanos::ZERO);
            timeouts.record_timeout(2, timeout);
        }
        assert_eq!(timeouts.timeout(Nanos::ZERO), MS(7));
        timeouts.forget(2);
        assert_eq!(timeouts.timeout(Nanos::ZERO), PAUSE, "it is away");
    }

    #[test]
    fn timeouts_do_not_raise_themselves_without_responses() {
        let mut timeouts = LeafTimeouts::new(None, MS(1), 1);
        for _ in 0..1_000 {
            let timeout = timeouts.timeout(Nanos::ZERO);
            timeouts.record_timeout(0, timeout);
        }
        assert_eq!((timeouts.timeout(Nanos::ZERO), timeouts.failure_timeout()), (INITIAL_TIMEOUT, INITIAL_TIMEOUT));
        answered(&mut timeouts, 200, &[1]);
        assert_eq!(timeouts.timeout(Nanos::ZERO), PAUSE);
    }

    #[test]
    fn extreme_values_are_accepted() {
        let mut timeouts = LeafTimeouts::new(None, Nanos::MAX, 1);
        timeouts.record_response(7, MS(1));
        timeouts.record_response(0, Nanos::MAX);
        timeouts.record_response(0, Nanos::ZERO);
        timeouts.record_timeout(0, Nanos::MAX);
        timeouts.forget(7);
        assert_eq!(timeouts.timeout(Nanos::MAX), INITIAL_TIMEOUT);
    }
}
