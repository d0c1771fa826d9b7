//! Second calls: when a call that takes long is made again at another leaf, and what that may cost (Dean and Barroso, The Tail at Scale,
//! 2013: a second request after the first has taken longer than 95 % do). Leaves are numbers here. Never here: links and requests.
//!
//! `budget`: the calls that may be made again, as a part of all calls. `waits`: how long a leaf is waited for at all.

mod budget;
mod timeouts;

pub use budget::RetryBudget;
pub use timeouts::LeafTimeouts;

use crate::units::{Nanos, Time};

/// Second calls of those that take long, in percent of calls.
const HEDGES: u32 = 5;
/// Second calls of those that were rejected, in percent of calls.
const RETRIES: u32 = 10;
/// Round trips of which the 95th percentile is taken.
const SAMPLES: usize = 64;
/// Round trips before it is believed.
const MIN_SAMPLES: usize = 32;
/// The percentile is taken anew after so many.
const REFRESH_INTERVAL: usize = 16;
/// A leaf that has dropped a call or taken credits back gets no second calls for so long: they would be load upon overload.
const BACKOFF: Nanos = Nanos::from_millis(100);

/// A leaf's tail.
#[derive(Clone, Debug)]
struct LeafLatency {
    /// The last round trips, in nanoseconds, the oldest overwritten first.
    samples: Box<[u32; SAMPLES]>,
    count: usize,
    p95: Option<Nanos>,
    /// Calls that the leaf allowed to be unanswered when it was last looked at.
    allowed: u32,
    backoff_until: Time,
}

impl Default for LeafLatency {
    fn default() -> Self {
        LeafLatency { samples: Box::new([0; SAMPLES]), count: 0, p95: None, allowed: 0, backoff_until: Time::ZERO }
    }
}

/// Tails of all leaves, and what second calls may cost.
///
/// ```
/// use leeward_core::hedging::Hedges;
/// use leeward_core::units::{Nanos, Time};
///
/// let mut hedges = Hedges::new(2);
/// for _ in 0..64 {
///     hedges.called();
///     hedges.answered(0, Nanos::from_micros(50));
/// }
/// assert_eq!(hedges.patience(0), Some(Nanos::from_micros(50)));
/// // The leaf, and the one with the same part of the data: both let so many calls go.
/// assert!(hedges.may_hedge(Time::ZERO, (0, 8), (1, 8)));
/// ```
#[derive(Clone, Debug)]
pub struct HedgingPolicy {
    leaves: Vec<LeafLatency>,
    hedges: RetryBudget,
    retries: RetryBudget,
}

impl HedgingPolicy {
    /// No calls yet to any of so many leaves, and both budgets full.
    pub fn new(leaves: usize) -> Self {
        let tails = vec![LeafLatency::default(); leaves];
        HedgingPolicy { leaves: tails, hedges: RetryBudget::new(HEDGES), retries: RetryBudget::new(RETRIES) }
    }

    /// A call was made: it pays for a part of a second one.
    pub fn record_call(&mut self) {
        self.hedges.deposit();
        self.retries.deposit();
    }

    /// A leaf has answered after so long, and now allows so many calls.
    pub fn record_response(&mut self, leaf: usize, round_trip: Nanos) {
        let Some(tail) = self.leaves.get_mut(leaf) else { return };
        tail.samples[tail.count % SAMPLES] = u32::try_from(round_trip.0).unwrap_or(u32::MAX);
        tail.count += 1;
        if tail.count >= MIN_SAMPLES && tail.count.is_multiple_of(REFRESH_INTERVAL) {
            let mut sorted = *tail.samples;
            let known = &mut sorted[..tail.count.min(SAMPLES)];
            let place = known.len() * 95 / 100;
            tail.p95 = Some(Nanos(u64::from(*known.select_nth_unstable(place).1)));
        }
    }

    /// A leaf has dropped a call.
    pub fn record_rejection(&mut self, now: Time, leaf: usize) {
        if let Some(tail) = self.leaves.get_mut(leaf) {
            tail.backoff_until = now + BACKOFF;
        }
    }

    /// How long a call of a leaf takes before it is worth a second one; `None` while that is not known.
    pub fn hedge_delay(&self, leaf: usize) -> Option<Nanos> {
        self.leaves.get(leaf)?.p95
    }

    /// Whether a leaf is neither overloaded nor about to be, as far as can be seen: it has dropped nothing lately, and its window has not
    /// shrunk. It allows so many calls now.
    fn is_healthy(&mut self, now: Time, leaf: usize, allowed: u32) -> bool {
        let Some(tail) = self.leaves.get_mut(leaf) else { return false };
        if allowed < tail.allowed {
            tail.backoff_until = now + BACKOFF;
        }
        tail.allowed = allowed;
        now >= tail.backoff_until
    }

    /// Whether a call that takes long at `first` may be made again at `second`; if so, that is paid for. Each with the calls that it
    /// allows.
    pub fn try_hedge(&mut self, now: Time, first: (usize, u32), second: (usize, u32)) -> bool {
        // Both are looked at, so that both are known the next time.
        let first_is_well = self.is_healthy(now, first.0, first.1);
        self.is_healthy(now, second.0, second.1) && first_is_well && self.hedges.try_withdraw()
    }

    /// Whether a call that was rejected may be made at `second`; if so, that is paid for.
    pub fn try_retry(&mut self, now: Time, second: (usize, u32)) -> bool {
        self.is_healthy(now, second.0, second.1) && self.retries.try_withdraw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = 0;
    const B: usize = 1;

    #[test]
    fn patience_is_the_95th_percentile_of_what_came_last() {
        let mut hedges = HedgingPolicy::new(2);
        for trip in 0..MIN_SAMPLES as u64 - 1 {
            hedges.record_response(A, Nanos(trip));
        }
        assert_eq!(hedges.hedge_delay(A), None, "too few");
        (0..SAMPLES as u64).for_each(|trip| hedges.record_response(A, Nanos(trip)));
        // One more, so that the last of them completes a count.
        (0..=REFRESH_INTERVAL).for_each(|_| hedges.record_response(A, Nanos(1_000)));
        assert_eq!(hedges.hedge_delay(A), Some(Nanos(1_000)), "more than 5 % take so long now");
        assert_eq!(hedges.hedge_delay(B), None);
        assert_eq!(hedges.hedge_delay(2), None);
        hedges.record_response(2, Nanos(1));
    }

    #[test]
    fn second_calls_are_a_twentieth_of_calls() {
        let mut hedges = HedgingPolicy::new(2);
        let mut made = 0;
        for _ in 0..10_000 {
            hedges.record_call();
            made += u32::from(hedges.try_hedge(Time(1), (A, 9), (B, 9)));
        }
        // Ten were saved.
        assert!((500..=510).contains(&made), "{made}");
    }

    #[test]
    fn overload_ends_them() {
        let mut hedges = HedgingPolicy::new(2);
        let now = Time::ZERO + Nanos::from_secs(1);
        assert!(hedges.try_hedge(now, (A, 8), (B, 8)));
        hedges.record_rejection(now, A);
        assert!(!hedges.try_hedge(now, (A, 8), (B, 8)), "it would come from a leaf that drops");
        assert!(!hedges.try_hedge(now, (B, 8), (A, 8)), "it would go to a leaf that drops");
        assert!(hedges.try_hedge(now + BACKOFF, (A, 8), (B, 8)));
        assert!(!hedges.try_hedge(now + BACKOFF, (A, 7), (B, 8)), "its pool shrank");
        assert!(!hedges.try_hedge(now + BACKOFF, (A, 7), (B, 8)), "for a while");
        assert!(hedges.try_hedge(now + BACKOFF * 2, (A, 7), (B, 8)));
        assert!(!hedges.try_retry(now + BACKOFF * 2, (B, 1)));
        assert!(hedges.try_retry(now + BACKOFF * 2, (A, 7)));
    }
}
