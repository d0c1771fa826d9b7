//! Credits that a tier holds at its leaves, over all connections, and calls per request: what its controller is told of the narrowest leaf
//! (thesis §4.1.1 leaves it open). Never here: what the controller makes of it.

use super::leaf_connections::LeafConnections;
use leeward_core::server::Downstream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests after which calls per request are counted anew.
const RATE_INTERVAL: u64 = 32;
/// Weight of the newest count in the average.
const WEIGHT: f64 = 0.25;

/// Credits at all leaves. Sums and a flag: a thread that reads between two changes is told again.
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
    /// Connections whose windows bind.
    binding: AtomicI64,
    calls: AtomicU64,
    connections: LeafConnections,
}

/// A leaf as its tier sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Calls so far, those that were repeated included.
    pub calls: u64,
    /// Connections that are there. After a loss only those that were looked at since.
    pub connections: u64,
    /// Credits at the leaf over all connections; `None` where none binds.
    pub credits: Option<i64>,
}

#[derive(Debug, Default)]
struct Rates {
    requests: u64,
    /// Of each leaf: calls when they were counted last, and calls per request.
    leaves: Vec<(u64, f64)>,
}

impl BackendCredits {
    /// For so many leaves, where nothing binds yet.
    pub(super) fn new(leaves: usize) -> Self {
        BackendCredits { leaves: (0..leaves).map(|_| LeafCredits::default()).collect(), ..BackendCredits::default() }
    }

    /// A request begins.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A leaf is called.
    pub(super) fn call(&self, leaf: usize) {
        if let Some(purse) = self.leaves.get(leaf) {
            purse.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connections to a leaf.
    pub(super) fn connections(&self, leaf: usize) -> Option<&LeafConnections> {
        self.leaves.get(leaf).map(|purse| &purse.connections)
    }

    /// Each leaf, in their order.
    pub(super) fn leaf_counts(&self) -> Vec<LeafCounts> {
        let told = |purse: &LeafCredits| LeafCounts {
            calls: purse.calls.load(Ordering::Relaxed),
            connections: purse.connections.connections(),
            credits: (purse.binding.load(Ordering::Relaxed) > 0).then(|| purse.credits.load(Ordering::Relaxed)),
        };
        self.leaves.iter().map(told).collect()
    }

    /// The window of a connection to a leaf was so large, and is now; `None`: it does not bind, or there is no connection.
    pub(super) fn change(&self, leaf: usize, before: Option<u32>, now: Option<u32>) {
        let Some(purse) = self.leaves.get(leaf).filter(|_| before != now) else { return };
        let credits = |window: Option<u32>| i64::from(window.unwrap_or(0));
        purse.credits.fetch_add(credits(now) - credits(before), Ordering::Relaxed);
        purse.binding.fetch_add(i64::from(now.is_some()) - i64::from(before.is_some()), Ordering::Relaxed);
        self.has_changed.store(true, Ordering::Release);
    }

    /// The narrowest of the leaves that are there, if anything has changed since this was asked last.
    pub(super) fn take_narrowest(&self) -> Option<Downstream> {
        // The flag is read first: mostly nothing has changed, and then it stays in every thread's cache.
        if !self.has_changed.load(Ordering::Relaxed) || !self.has_changed.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let rates = &mut *rates;
        // Until it is known, a request calls each leaf once.
        rates.leaves.resize(self.leaves.len(), (0, 1.0));
        let requests = self.requests.load(Ordering::Relaxed);
        let begun = requests - rates.requests;
        if begun >= RATE_INTERVAL {
            rates.requests = requests;
            for (purse, (before, rate)) in self.leaves.iter().zip(&mut rates.leaves) {
                let calls = purse.calls.load(Ordering::Relaxed);
                let newest = calls.saturating_sub(*before) as f64 / begun as f64;
                *before = calls;
                *rate += WEIGHT * (newest - *rate);
            }
        }
        // A leaf that is away limits nobody: answers without it are partial.
        let bound =
            self.leaves.iter().zip(&rates.leaves).filter(|(purse, _)| purse.binding.load(Ordering::Relaxed) > 0);
        let credits = |purse: &LeafCredits| u64::try_from(purse.credits.load(Ordering::Relaxed)).unwrap_or(0);
        Some(Downstream::bottleneck(bound.map(|(purse, (_, rate))| Downstream::new(credits(purse), *rate))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_leaf_is_told_once() {
        let purses = BackendCredits::new(3);
        assert_eq!(purses.take_narrowest(), None);
        purses.change(0, None, Some(8));
        purses.change(0, None, Some(4));
        purses.change(1, None, Some(6));
        assert_eq!(purses.take_narrowest(), Some(Downstream::new(6, 1.0)), "two connections to the first leaf");
        assert_eq!(purses.take_narrowest(), None);
        purses.change(0, Some(8), Some(1));
        assert_eq!(purses.take_narrowest(), Some(Downstream::new(5, 1.0)));
        purses.change(0, Some(1), None);
        purses.change(0, Some(4), None);
        purses.change(1, Some(6), None);
        assert_eq!(purses.take_narrowest(), Some(Downstream::UNLIMITED), "nobody is there");
        purses.change(7, None, Some(1));
    }

    #[test]
    fn calls_per_request_are_an_average() {
        let purses = BackendCredits::new(2);
        for _ in 0..40 {
            for turn in 0..RATE_INTERVAL {
                purses.request();
                purses.call(0);
                purses.call(0);
                if turn % 4 == 0 {
                    purses.call(1);
                }
            }
            purses.change(0, None, Some(1));
            purses.change(1, None, Some(1));
            purses.take_narrowest();
        }
        purses.change(1, None, Some(0));
        let news = purses.take_narrowest().unwrap();
        assert_eq!(news.credits, 40);
        assert!((news.calls_per_request - 2.0).abs() < 0.01, "{news:?}");
    }
}
