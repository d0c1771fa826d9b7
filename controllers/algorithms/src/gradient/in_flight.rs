//! How many requests are in the server and how many may be. Never here: why the limit is what it is ([`super::law`]).

use leeward_core::sync::{AtomicI64, CachePadded, Ordering};

/// Shared by all cores.
#[derive(Debug)]
pub(super) struct InFlight {
    count: CachePadded<AtomicI64>,
    limit: CachePadded<AtomicI64>,
}

impl InFlight {
    pub(super) fn new(limit: i64) -> Self {
        InFlight { count: CachePadded(AtomicI64::new(0)), limit: CachePadded(AtomicI64::new(limit)) }
    }

    /// Takes a place if one is free.
    pub(super) fn try_enter(&self) -> bool {
        // Compare-and-swap: with an addition that is taken back, a core could be refused by another's refused attempt.
        let limit = self.limit.0.load(Ordering::Relaxed);
        let mut count = self.count.0.load(Ordering::Relaxed);
        while count < limit {
            match self.count.0.compare_exchange_weak(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => count = seen,
            }
        }
        false
    }

    /// Gives places back.
    pub(super) fn leave(&self, places: i64) {
        if places != 0 {
            self.count.0.fetch_sub(places, Ordering::Relaxed);
        }
    }

    /// Requests in the server.
    pub(super) fn count(&self) -> i64 {
        self.count.0.load(Ordering::Relaxed)
    }

    /// Requests beyond a smaller limit stay; no more come in until enough have left.
    pub(super) fn set_limit(&self, limit: i64) {
        self.limit.0.store(limit, Ordering::Relaxed);
    }
}
