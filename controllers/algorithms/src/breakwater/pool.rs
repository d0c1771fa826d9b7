//! The credits that all cores of a server share. Does not contain sessions, windows, or the rule by
//! which the pool grows and shrinks (`law`).

use super::samples::CLASSES;
use leeward_core::sync::{AtomicI64, CachePadded, Ordering};

/// `c_total`, `c_issued` and `n_c`. Each value is exact. Two values that are read together may
/// belong to slightly different moments. The algorithm tolerates this by design: its normal state
/// is a credit more or less issued than the pool has.
#[derive(Debug)]
pub struct Pool {
    control_state: CachePadded<ControlState>,
    issued: CachePadded<AtomicI64>,
    sessions: CachePadded<AtomicI64>,
    /// Whether a session waits for a credit and none is available: 0 or 1.
    unmet_demand: CachePadded<AtomicI64>,
    /// Requests of each class that may still enter while none leaves, or [`UNBOUNDED`].
    slots: [CachePadded<AtomicI64>; CLASSES],
    /// Requests of each class that found no slot since the last tick.
    without_slot: [AtomicI64; CLASSES],
}

/// Slots of a class without a bound on its requests in the server.
const UNBOUNDED: i64 = i64::MAX;

/// Values that the slow half writes and the fast halves read.
#[derive(Debug)]
struct ControlState {
    total: AtomicI64,
    /// Whether sessions return their last credit: 0 or 1.
    reclaims_last_credit: AtomicI64,
    /// Whether AQM lets a backlog wait: 0 or 1.
    allows_backlog: AtomicI64,
    /// Whether requests of untried sessions take a credit: 0 or 1.
    charges_untried: AtomicI64,
    /// Whether an overload is detected: 0 or 1; always 1 as published.
    overload_detected: AtomicI64,
}

impl Pool {
    pub(crate) fn new(total: i64) -> Self {
        let size = ControlState {
            total: AtomicI64::new(total),
            reclaims_last_credit: AtomicI64::new(0),
            allows_backlog: AtomicI64::new(0),
            charges_untried: AtomicI64::new(0),
            overload_detected: AtomicI64::new(1),
        };
        Pool {
            control_state: CachePadded(size),
            issued: CachePadded(AtomicI64::new(0)),
            sessions: CachePadded(AtomicI64::new(0)),
            unmet_demand: CachePadded(AtomicI64::new(0)),
            slots: std::array::from_fn(|_| CachePadded(AtomicI64::new(UNBOUNDED))),
            without_slot: std::array::from_fn(|_| AtomicI64::new(0)),
        }
    }

    /// `c_total`: the credits that match the load the server can take.
    pub fn total(&self) -> i64 {
        self.control_state.0.total.load(Ordering::Relaxed)
    }

    /// `c_issued`: the sum of all sessions' windows.
    pub fn issued(&self) -> i64 {
        self.issued.0.load(Ordering::Relaxed)
    }

    /// `n_c`: registered sessions.
    pub fn sessions(&self) -> i64 {
        self.sessions.0.load(Ordering::Relaxed)
    }

    /// Credits that may still be issued; negative when too many are issued.
    pub fn available_credits(&self) -> i64 {
        self.total() - self.issued()
    }

    /// `c_oc`: credits a session may hold beyond its known demand (Breakwater §3.2.2, eq. 4).
    pub fn overcommit(&self) -> i64 {
        let sessions = self.sessions().max(1);
        let open = self.available_credits();
        // The division is expensive and rarely needed: mostly fewer credits are available than
        // there are sessions.
        if open < 2 * sessions { 1 } else { open / sessions }
    }

    /// Records a change of a window.
    pub(crate) fn issue(&self, change: i64) {
        if change != 0 {
            self.issued.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Takes one credit if one is available, and counts it as issued.
    pub(crate) fn try_take(&self) -> bool {
        // Compare-and-swap: two cores that wake sessions at the same time must not both take the
        // last credit.
        let mut issued = self.issued();
        while issued < self.total() {
            match self.issued.0.compare_exchange_weak(issued, issued + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => issued = seen,
            }
        }
        false
    }

    pub(crate) fn session_opened(&self) {
        self.sessions.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn session_closed(&self) {
        self.sessions.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn set_total(&self, total: i64) {
        self.control_state.0.total.store(total, Ordering::Relaxed);
    }

    /// Whether a session returns its last credit while more credits are issued than the pool has.
    /// The delay signal does not need this: rejections take credits away. With plain locks nothing
    /// is rejected, and a pool smaller than the number of active sessions would have no effect.
    pub(crate) fn reclaims_last_credit(&self) -> bool {
        self.control_state.0.reclaims_last_credit.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_reclaims_last_credit(&self, reclaims: bool) {
        self.control_state.0.reclaims_last_credit.store(reclaims.into(), Ordering::Relaxed);
    }

    /// Whether an allocator can still grant cores for waiting requests, so that AQM lets them wait.
    /// Never without an allocator.
    pub(crate) fn allows_backlog(&self) -> bool {
        self.control_state.0.allows_backlog.load(Ordering::Relaxed) != 0
    }

    /// Whether a request of a session that has had no credit takes an available one.
    pub(crate) fn charges_untried(&self) -> bool {
        self.control_state.0.charges_untried.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_charges_untried(&self, charges: bool) {
        self.control_state.0.charges_untried.store(charges.into(), Ordering::Relaxed);
    }

    /// Whether an overload is detected ([`super::overload`]). Without one, no request is rejected
    /// for its delay. Always true as published.
    pub(crate) fn is_overload_detected(&self) -> bool {
        self.control_state.0.overload_detected.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_overload_detected(&self, detected: bool) {
        self.control_state.0.overload_detected.store(detected.into(), Ordering::Relaxed);
    }

    /// Records that a session waits for a credit and none is available.
    pub(super) fn record_unmet_demand(&self) {
        // Cores share this cache line; until the next tick takes the record, one store is enough.
        if self.unmet_demand.0.load(Ordering::Relaxed) == 0 {
            self.unmet_demand.0.store(1, Ordering::Relaxed);
        }
    }

    /// Whether a session has waited for an unavailable credit since the last call.
    pub(super) fn take_unmet_demand(&self) -> bool {
        self.unmet_demand.0.load(Ordering::Relaxed) != 0 && self.unmet_demand.0.swap(0, Ordering::Relaxed) != 0
    }

    /// Takes a slot for a request of a class; returns whether one was free, or the class has no
    /// bound.
    pub(super) fn try_enter(&self, class: usize) -> bool {
        let has_entered = self.update_slots(class, |slots| if slots > 0 { Some(slots - 1) } else { None });
        if !has_entered {
            self.without_slot[class].fetch_add(1, Ordering::Relaxed);
        }
        has_entered
    }

    /// Gives the slot of a request back that has left the server. Without this, a bound would hold
    /// for the requests of a tick, and not for those in the server.
    pub(super) fn leave(&self, class: usize) {
        self.update_slots(class, |slots| Some(slots + 1));
    }

    /// Changes the slots of a class unless it has no bound. Returns false if `change` does not.
    fn update_slots(&self, class: usize, change: impl Fn(i64) -> Option<i64>) -> bool {
        let slots = &self.slots[class].0;
        let mut current = slots.load(Ordering::Relaxed);
        while current != UNBOUNDED {
            let Some(new) = change(current) else { return false };
            match slots.compare_exchange_weak(current, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(changed) => current = changed,
            }
        }
        true
    }

    /// Sets the number of requests of a class that may enter while none leaves; `None` is no bound.
    /// Returns the requests rejected since the last call.
    pub(super) fn set_slots(&self, class: usize, slots: Option<i64>) -> u64 {
        let new = slots.unwrap_or(UNBOUNDED);
        let (current, rejected) = (&self.slots[class].0, &self.without_slot[class]);
        if new != UNBOUNDED || current.load(Ordering::Relaxed) != UNBOUNDED {
            // Not a plain store: it takes its turn among the changes of cores.
            current.swap(new, Ordering::Relaxed);
        }
        if rejected.load(Ordering::Relaxed) == 0 { 0 } else { rejected.swap(0, Ordering::Relaxed).unsigned_abs() }
    }

    pub(super) fn set_allows_backlog(&self, allows: bool) {
        self.control_state.0.allows_backlog.store(allows.into(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pool(total: i64, sessions: i64) -> Pool {
        let pool = Pool::new(total);
        (0..sessions).for_each(|_| pool.session_opened());
        pool
    }

    #[test]
    fn overcommitment_is_the_available_share_per_session_and_at_least_one() {
        for (total, sessions, expected) in [(10, 100, 1), (100, 100, 1), (199, 100, 1), (200, 100, 2), (950, 100, 9)] {
            assert_eq!(pool(total, sessions).overcommit(), expected);
        }
        assert_eq!(pool(10, 0).overcommit(), 10);
    }
}
