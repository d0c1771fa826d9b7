//! Count and limit of the requests in the server. Does not contain the rule for the limit
//! ([`super::law`]).

use leeward_core::sync::{AtomicI64, CachePadded, Ordering};

/// Count and limit, shared by all cores.
#[derive(Debug)]
pub(super) struct InFlight {
    count: CachePadded<AtomicI64>,
    limit: CachePadded<AtomicI64>,
}

impl InFlight {
    pub(super) fn new(limit: i64) -> Self {
        InFlight { count: CachePadded(AtomicI64::new(0)), limit: CachePadded(AtomicI64::new(limit)) }
    }

    /// Takes a slot if one is free.
    pub(super) fn try_enter(&self) -> bool {
        // Compare-and-swap: with an addition and its undo, one core's rejected attempt could make
        // another core reject.
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

    /// Returns slots.
    pub(super) fn leave(&self, slots: i64) {
        if slots != 0 {
            self.count.0.fetch_sub(slots, Ordering::Relaxed);
        }
    }

    /// Requests in the server.
    pub(super) fn count(&self) -> i64 {
        self.count.0.load(Ordering::Relaxed)
    }

    /// Sets the limit. Requests beyond a smaller limit stay; no more enter until enough have left.
    pub(super) fn set_limit(&self, limit: i64) {
        self.limit.0.store(limit, Ordering::Relaxed);
    }
}
