//! Credits that a tier holds at its leaves over all connections, and its calls per request.
//!
//! The tier's controller gets the narrowest leaf from here (thesis §4.1.1 leaves this open). Does
//! not contain the controller's reaction to it.

use super::leaf_connections::LeafConnections;
use leeward_core::server::Downstream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests between two updates of the calls per request.
const RATE_INTERVAL: u64 = 32;
/// Weight of the newest rate in the moving average.
const WEIGHT: f64 = 0.25;

/// Credits at all leaves.
///
/// Holds sums and a flag. A thread that reads between two changes sees the flag again later.
#[derive(Debug, Default)]
pub(super) struct BackendCredits {
    leaves: Box<[LeafCredits]>,
    requests: AtomicU64,
    has_changed: AtomicBool,
    rates: Mutex<Rates>,
}

/// Credits at one leaf.
#[derive(Debug, Default)]
struct LeafCredits {
    credits: AtomicI64,
    /// Connections whose windows limit the calls.
    binding: AtomicI64,
    calls: AtomicU64,
    connections: LeafConnections,
}

/// Counters of one leaf, as its tier sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Calls so far, repeated calls included.
    pub calls: u64,
    /// Open connections. After a loss, counts only the connections that their shards polled since.
    pub connections: u64,
    /// Credits at the leaf over all connections; `None` if no window limits the calls.
    pub credits: Option<i64>,
}

#[derive(Debug, Default)]
struct Rates {
    requests: u64,
    /// Per leaf: calls at the last update, and calls per request.
    leaves: Vec<(u64, f64)>,
}

impl BackendCredits {
    /// Creates the counters for `leaves` leaves, none with a window that limits the calls.
    pub(super) fn new(leaves: usize) -> Self {
        BackendCredits { leaves: (0..leaves).map(|_| LeafCredits::default()).collect(), ..BackendCredits::default() }
    }

    /// Counts a request that begins.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call to a leaf.
    pub(super) fn call(&self, leaf: usize) {
        if let Some(leaf_credits) = self.leaves.get(leaf) {
            leaf_credits.calls.fetch_add(1, Ordering::Relaxed);
        }
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
        // Until the rate is known, assume that a request calls each leaf once.
        rates.leaves.resize(self.leaves.len(), (0, 1.0));
        let requests = self.requests.load(Ordering::Relaxed);
        let started = requests - rates.requests;
        if started >= RATE_INTERVAL {
            rates.requests = requests;
            for (leaf_credits, (before, rate)) in self.leaves.iter().zip(&mut rates.leaves) {
                let calls = leaf_credits.calls.load(Ordering::Relaxed);
                let newest = calls.saturating_sub(*before) as f64 / started as f64;
                *before = calls;
                *rate += WEIGHT * (newest - *rate);
            }
        }
        // An unreachable leaf limits no request: responses without it are partial.
        let limiting = self
            .leaves
            .iter()
            .zip(&rates.leaves)
            .filter(|(leaf_credits, _)| leaf_credits.binding.load(Ordering::Relaxed) > 0);
        let credits =
            |leaf_credits: &LeafCredits| u64::try_from(leaf_credits.credits.load(Ordering::Relaxed)).unwrap_or(0);
        Some(Downstream::bottleneck(
            limiting.map(|(leaf_credits, (_, rate))| Downstream::new(credits(leaf_credits), *rate)),
        ))
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
                credits.call(0);
                credits.call(0);
                if request % 4 == 0 {
                    credits.call(1);
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
}
