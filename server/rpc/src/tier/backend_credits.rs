//! Credits that a tier holds at its leaves over all connections, and its calls per request.
//!
//! The tier's controller gets the narrowest leaf from here (thesis §4.1.1 leaves this open). Does
//! not contain the controller's reaction to it.

use super::leaf_connections::LeafConnections;
use leeward_core::hedging::SlowLeaves;
use leeward_core::server::Downstream;
use leeward_core::units::{Nanos, Time};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests between two updates of the calls per request.
const RATE_INTERVAL: u64 = 32;
/// Weight of the newest rate in the moving average.
const WEIGHT: f64 = 0.25;
/// Least interval between two judgements of leaves.
const JUDGEMENT_INTERVAL: Nanos = Nanos::from_millis(1);

/// Credits at all leaves.
///
/// Holds sums and a flag. A thread that reads between two changes sees the flag again later.
#[derive(Debug)]
pub(super) struct BackendCredits {
    leaves: Box<[LeafCredits]>,
    requests: AtomicU64,
    has_changed: AtomicBool,
    rates: Mutex<Rates>,
    /// Stalls of the leaves over all shards.
    stalls: Mutex<SlowLeaves>,
    /// Number of slow leaves.
    slow_leaves: AtomicU64,
    /// Time of the last judgement, in nanoseconds.
    judged_at: AtomicU64,
}

/// Credits at one leaf.
#[derive(Debug, Default)]
struct LeafCredits {
    credits: AtomicI64,
    /// Connections whose windows limit the calls.
    binding: AtomicI64,
    calls: AtomicU64,
    /// Calls of requests that can't do without any part.
    needed_calls: AtomicU64,
    is_slow: AtomicBool,
    connections: LeafConnections,
}

/// Counters of one leaf, as its tier sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Calls so far, repeated calls included.
    pub calls: u64,
    /// Open connections. After a loss, only those on which the leaf has sent something since.
    pub connections: u64,
    /// Credits at the leaf over all connections; `None` if no window limits the calls.
    pub credits: Option<i64>,
}

#[derive(Debug, Default)]
struct Rates {
    requests: u64,
    /// Per leaf: all calls, and calls of requests that can't do without any part.
    leaves: Vec<[CallRate; 2]>,
}

/// Calls to a leaf at the last update, and calls per request.
#[derive(Clone, Copy, Debug)]
struct CallRate {
    calls: u64,
    per_request: f64,
}

impl CallRate {
    /// Until the rate is known, assume that a request calls each leaf once.
    const INITIAL: CallRate = CallRate { calls: 0, per_request: 1.0 };

    fn update(&mut self, calls: u64, requests: u64) {
        let newest = calls.saturating_sub(self.calls) as f64 / requests as f64;
        self.calls = calls;
        self.per_request += WEIGHT * (newest - self.per_request);
    }
}

impl Default for BackendCredits {
    fn default() -> Self {
        BackendCredits::new(0)
    }
}

impl BackendCredits {
    /// Creates the counters for `leaves` leaves, none with a window that limits the calls.
    pub(super) fn new(leaves: usize) -> Self {
        BackendCredits {
            leaves: (0..leaves).map(|_| LeafCredits::default()).collect(),
            requests: AtomicU64::new(0),
            has_changed: AtomicBool::new(false),
            rates: Mutex::default(),
            stalls: Mutex::new(SlowLeaves::new(leaves)),
            slow_leaves: AtomicU64::new(0),
            judged_at: AtomicU64::new(0),
        }
    }

    /// Counts a request that begins.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests that have begun.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a call to a leaf. `is_needed`: its request can't do without any part.
    pub(super) fn call(&self, leaf: usize, is_needed: bool) {
        if let Some(leaf_credits) = self.leaves.get(leaf) {
            leaf_credits.calls.fetch_add(1, Ordering::Relaxed);
            if is_needed {
                leaf_credits.needed_calls.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Records that a call to a leaf waited too long, from `from` to `to`.
    pub(super) fn record_stall(&self, leaf: usize, from: Time, to: Time) {
        let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.record_stall(leaf, from, to);
        self.judge(&mut stalls, to);
    }

    /// Whether any leaf is slow at `now`.
    pub(super) fn has_slow(&self, now: Time) -> bool {
        if self.slow_leaves.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.is_judgement_due(now) {
            self.judge(&mut self.stalls.lock().unwrap_or_else(PoisonError::into_inner), now);
        }
        self.slow_leaves.load(Ordering::Relaxed) > 0
    }

    /// Whether a leaf is slow, as of the last judgement.
    pub(super) fn is_slow(&self, leaf: usize) -> bool {
        self.leaves.get(leaf).is_some_and(|leaf| leaf.is_slow.load(Ordering::Relaxed))
    }

    fn is_judgement_due(&self, now: Time) -> bool {
        now.since(Time(self.judged_at.load(Ordering::Relaxed))) >= JUDGEMENT_INTERVAL
    }

    /// Updates which leaves are slow, if a judgement is due.
    fn judge(&self, stalls: &mut SlowLeaves, now: Time) {
        if !self.is_judgement_due(now) {
            return;
        }
        self.judged_at.store(now.0, Ordering::Relaxed);
        let mut count = 0;
        for (leaf, is_slow) in self.leaves.iter().zip(stalls.slow_at(now).iter().copied()) {
            count += u64::from(is_slow);
            if leaf.is_slow.swap(is_slow, Ordering::Relaxed) != is_slow {
                self.has_changed.store(true, Ordering::Release);
            }
        }
        self.slow_leaves.store(count, Ordering::Relaxed);
    }

    /// Connections to a leaf.
    pub(super) fn connections(&self, leaf: usize) -> Option<&LeafConnections> {
        self.leaves.get(leaf).map(|credits| &credits.connections)
    }

    /// Counters of all leaves, in the order of the list.
    pub(super) fn leaf_counts(&self) -> Vec<LeafCounts> {
        let counts_of = |credits: &LeafCredits| LeafCounts {
            calls: credits.calls.load(Ordering::Relaxed),
            connections: credits.connections.connections(),
            credits: (credits.binding.load(Ordering::Relaxed) > 0).then(|| credits.credits.load(Ordering::Relaxed)),
        };
        self.leaves.iter().map(counts_of).collect()
    }

    /// Records that the window of a connection to a leaf changed from `before` to `now`.
    ///
    /// `None`: the window does not limit the calls, or there is no connection.
    pub(super) fn change(&self, leaf: usize, before: Option<u32>, now: Option<u32>) {
        let Some(leaf_credits) = self.leaves.get(leaf).filter(|_| before != now) else { return };
        let credits = |window: Option<u32>| i64::from(window.unwrap_or(0));
        leaf_credits.credits.fetch_add(credits(now) - credits(before), Ordering::Relaxed);
        leaf_credits.binding.fetch_add(i64::from(now.is_some()) - i64::from(before.is_some()), Ordering::Relaxed);
        self.has_changed.store(true, Ordering::Release);
    }

    /// The narrowest reachable leaf, if anything has changed since the last call of this method.
    pub(super) fn take_narrowest(&self) -> Option<Downstream> {
        // Read the flag before the swap: mostly nothing has changed, and the line stays in every
        // thread's cache.
        if !self.has_changed.load(Ordering::Relaxed) || !self.has_changed.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let rates = &mut *rates;
        rates.leaves.resize(self.leaves.len(), [CallRate::INITIAL; 2]);
        let requests = self.requests.load(Ordering::Relaxed);
        let started = requests - rates.requests;
        if started >= RATE_INTERVAL {
            rates.requests = requests;
            for (LeafCredits { calls, needed_calls, .. }, [all, needed]) in self.leaves.iter().zip(&mut rates.leaves) {
                all.update(calls.load(Ordering::Relaxed), started);
                needed.update(needed_calls.load(Ordering::Relaxed), started);
            }
        }
        // An unreachable leaf limits no request, and a slow one only those that need it: responses
        // without it are partial.
        let limiting = self
            .leaves
            .iter()
            .zip(&rates.leaves)
            .filter(|(leaf_credits, _)| leaf_credits.binding.load(Ordering::Relaxed) > 0);
        let credits =
            |leaf_credits: &LeafCredits| u64::try_from(leaf_credits.credits.load(Ordering::Relaxed)).unwrap_or(0);
        Some(Downstream::bottleneck(limiting.map(|(leaf_credits, [all, needed])| {
            let rate = if leaf_credits.is_slow.load(Ordering::Relaxed) { needed } else { all };
            Downstream::new(credits(leaf_credits), rate.per_request)
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_leaf_is_reported_once() {
        let credits = BackendCredits::new(3);
        assert_eq!(credits.take_narrowest(), None);
        credits.change(0, None, Some(8));
        credits.change(0, None, Some(4));
        credits.change(1, None, Some(6));
        assert_eq!(credits.take_narrowest(), Some(Downstream::new(6, 1.0)), "two connections to the first leaf");
        assert_eq!(credits.take_narrowest(), None);
        credits.change(0, Some(8), Some(1));
        assert_eq!(credits.take_narrowest(), Some(Downstream::new(5, 1.0)));
        credits.change(0, Some(1), None);
        credits.change(0, Some(4), None);
        credits.change(1, Some(6), None);
        assert_eq!(credits.take_narrowest(), Some(Downstream::UNLIMITED), "nobody is there");
        credits.change(7, None, Some(1));
    }

    #[test]
    fn calls_per_request_are_an_average() {
        let credits = BackendCredits::new(2);
        for _ in 0..40 {
            for request in 0..RATE_INTERVAL {
                credits.request();
                credits.call(0, true);
                credits.call(0, true);
                if request % 4 == 0 {
                    credits.call(1, true);
                }
            }
            credits.change(0, None, Some(1));
            credits.change(1, None, Some(1));
            credits.take_narrowest();
        }
        credits.change(1, None, Some(0));
        let narrowest = credits.take_narrowest().unwrap();
        assert_eq!(narrowest.credits, 40);
        assert!((narrowest.calls_per_request - 2.0).abs() < 0.01, "{narrowest:?}");
    }

    /// Credits at two leaves, the second with few; half of the requests need both.
    fn half_needed() -> BackendCredits {
        let credits = BackendCredits::new(2);
        credits.change(0, None, Some(100));
        credits.change(1, None, Some(4));
        for request in 0..40 * RATE_INTERVAL {
            credits.request();
            (0..2).for_each(|leaf| credits.call(leaf, request % 2 == 0));
            if request % RATE_INTERVAL == 0 {
                credits.change(0, Some(100), Some(99));
                credits.change(0, Some(99), Some(100));
                credits.take_narrowest();
            }
        }
        credits
    }

    #[test]
    fn a_slow_leaf_limits_only_requests_that_need_it() {
        let credits = half_needed();
        let limit = |credits: &BackendCredits| credits.take_narrowest().unwrap().max_requests();
        credits.change(1, Some(4), Some(5));
        assert!((limit(&credits) - 5.0).abs() < 0.1, "it is narrow, and not slow");
        let now = Time::ZERO + Nanos::from_secs(1);
        credits.record_stall(1, Time::ZERO, now);
        assert!(credits.has_slow(now) && credits.is_slow(1) && !credits.is_slow(0));
        assert!((limit(&credits) - 10.0).abs() < 0.2, "every second request needs it");
        let later = now + Nanos::from_secs(5);
        assert!(!credits.has_slow(later) && !credits.is_slow(1));
        assert!((limit(&credits) - 5.0).abs() < 0.1, "it has recovered");
    }
}
