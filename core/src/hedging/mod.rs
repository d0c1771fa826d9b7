//! Hedging: a second call, to another leaf, when the first call takes long, and its budget. Dean
//! and Barroso (The Tail at Scale, 2013) send a second request after the first has taken longer
//! than 95 % of requests. Leaves are numbers here. Does not contain connections or requests.
//!
//! - `budget`: the calls that may be made again, as a part of all calls.
//! - `timeouts`: the longest wait for a leaf.
//! - `stalls`: leaves that are slow beside the others.

mod budget;
mod stalls;
mod timeouts;

pub use budget::RetryBudget;
pub use stalls::SlowLeaves;
pub use timeouts::LeafTimeouts;

use crate::units::{Nanos, Time};

/// Hedged calls, in percent of calls.
const HEDGES: u32 = 5;
/// Retries of rejected calls, in percent of calls.
const RETRIES: u32 = 10;
/// Round trips from which the 95th percentile is computed.
const SAMPLES: usize = 64;
/// Round trips before the percentile is used.
const MIN_SAMPLES: usize = 32;
/// Round trips between two computations of the percentile.
const REFRESH_INTERVAL: usize = 16;
/// Time without second calls after a leaf rejected a call or reduced its window: they would add
/// load to its overload.
const BACKOFF: Nanos = Nanos::from_millis(100);

/// Recent round trips of one leaf.
#[derive(Clone, Debug)]
struct LeafLatency {
    /// The last round trips, in nanoseconds; the oldest is overwritten first.
    samples: Box<[u32; SAMPLES]>,
    count: usize,
    p95: Option<Nanos>,
    /// Calls that the leaf allowed to be unanswered at the last check.
    allowed: u32,
    backoff_until: Time,
}

impl Default for LeafLatency {
    fn default() -> Self {
        LeafLatency { samples: Box::new([0; SAMPLES]), count: 0, p95: None, allowed: 0, backoff_until: Time::ZERO }
    }
}

/// Round trips of all leaves, and the budgets of second calls.
///
/// ```
/// use leeward_core::hedging::HedgingPolicy;
/// use leeward_core::units::{Nanos, Time};
///
/// let mut hedges = HedgingPolicy::new(2);
/// for _ in 0..64 {
///     hedges.record_call();
///     hedges.record_response(0, Nanos::from_micros(50));
/// }
/// assert_eq!(hedges.hedge_delay(0), Some(Nanos::from_micros(50)));
/// // The leaf, and the one with the same part of the data, each with the calls that it allows.
/// assert!(hedges.try_hedge(Time::ZERO, (0, 8), (1, 8)));
/// ```
#[derive(Clone, Debug)]
pub struct HedgingPolicy {
    leaves: Vec<LeafLatency>,
    hedges: RetryBudget,
    retries: RetryBudget,
}

impl HedgingPolicy {
    /// Creates the policy for `leaves` leaves, without any calls and with full budgets.
    pub fn new(leaves: usize) -> Self {
        let tails = vec![LeafLatency::default(); leaves];
        HedgingPolicy { leaves: tails, hedges: RetryBudget::new(HEDGES), retries: RetryBudget::new(RETRIES) }
    }

    /// Records a call, which pays for a part of a second one.
    pub fn record_call(&mut self) {
        self.hedges.deposit();
        self.retries.deposit();
    }

    /// Records a leaf's response and its round trip.
    pub fn record_response(&mut self, leaf: usize, round_trip: Nanos) {
        let Some(tail) = self.leaves.get_mut(leaf) else { return };
        tail.samples[tail.count % SAMPLES] = u32::try_from(round_trip.0).unwrap_or(u32::MAX);
        tail.count += 1;
        if tail.count >= MIN_SAMPLES && tail.count.is_multiple_of(REFRESH_INTERVAL) {
            let mut sorted = *tail.samples;
            let known = &mut sorted[..tail.count.min(SAMPLES)];
            let index = known.len() * 95 / 100;
            tail.p95 = Some(Nanos(u64::from(*known.select_nth_unstable(index).1)));
        }
    }

    /// Records that a leaf rejected a call.
    pub fn record_rejection(&mut self, now: Time, leaf: usize) {
        if let Some(tail) = self.leaves.get_mut(leaf) {
            tail.backoff_until = now + BACKOFF;
        }
    }

    /// Time after which a call to a leaf may be hedged; `None` while too few round trips are known.
    pub fn hedge_delay(&self, leaf: usize) -> Option<Nanos> {
        self.leaves.get(leaf)?.p95
    }

    /// Whether a leaf shows no sign of overload: it has rejected no call recently, and its window
    /// has not shrunk. `allowed` is its current limit of unanswered calls.
    fn is_healthy(&mut self, now: Time, leaf: usize, allowed: u32) -> bool {
        let Some(tail) = self.leaves.get_mut(leaf) else { return false };
        if allowed < tail.allowed {
            tail.backoff_until = now + BACKOFF;
        }
        tail.allowed = allowed;
        now >= tail.backoff_until
    }

    /// Whether a slow call to `first` may be made again at `second`; if so, takes it from the
    /// budget. Each leaf comes with the number of calls that it allows.
    pub fn try_hedge(&mut self, now: Time, first: (usize, u32), second: (usize, u32)) -> bool {
        // Checks both leaves, so that the limits of both are recorded.
        let first_is_healthy = self.is_healthy(now, first.0, first.1);
        self.is_healthy(now, second.0, second.1) && first_is_healthy && self.hedges.try_withdraw()
    }

    /// Whether a rejected call may be made at `second`; if so, takes it from the budget.
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
    fn the_hedge_delay_is_the_95th_percentile_of_recent_responses() {
        let mut hedges = HedgingPolicy::new(2);
        for trip in 0..MIN_SAMPLES as u64 - 1 {
            hedges.record_response(A, Nanos(trip));
        }
        assert_eq!(hedges.hedge_delay(A), None, "too few");
        (0..SAMPLES as u64).for_each(|trip| hedges.record_response(A, Nanos(trip)));
        // One more, so that the last call completes an interval.
        (0..=REFRESH_INTERVAL).for_each(|_| hedges.record_response(A, Nanos(1_000)));
        assert_eq!(hedges.hedge_delay(A), Some(Nanos(1_000)), "more than 5 % take so long now");
        assert_eq!(hedges.hedge_delay(B), None);
        assert_eq!(hedges.hedge_delay(2), None);
        hedges.record_response(2, Nanos(1));
    }

    #[test]
    fn hedges_are_a_twentieth_of_calls() {
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
    fn overload_stops_hedges_and_retries() {
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
