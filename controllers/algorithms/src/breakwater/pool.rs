//! The credits that all cores of a server share.
//! Never here: sessions and windows, and by what the pool grows and shrinks (`law`).

use super::samples::CLASSES;
use leeward_core::sync::{AtomicI64, CachePadded, Ordering};

/// `c_total`, `c_issued` and `n_c`. Each is exact. Values of two of them that are read together may be a moment apart,
/// which the algorithm tolerates by design: an issued credit more or less than the pool is its normal state.
#[derive(Debug)]
pub struct Pool {
    control_state: CachePadded<ControlState>,
    issued: CachePadded<AtomicI64>,
    sessions: CachePadded<AtomicI64>,
    /// Whether a session waits for a credit and none is open: 0 or 1.
    unmet_demand: CachePadded<AtomicI64>,
    /// Requests of a class that may still come in before the next tick; [`UNBOUNDED`]: as many as like.
    slots: [CachePadded<AtomicI64>; CLASSES],
}

/// Places where nothing bounds the requests in the server.
const UNBOUNDED: i64 = i64::MAX;

/// Values that the slow half writes and the fast halves read.
#[derive(Debug)]
struct ControlState {
    total: AtomicI64,
    /// 0 or 1.
    reclaims_last_credit: AtomicI64,
    /// 0 or 1.
    allows_backlog: AtomicI64,
    /// 0 or 1.
    charges_untried: AtomicI64,
    /// 0 or 1.
    calm: AtomicI64,
}

impl Pool {
    pub(crate) fn new(total: i64) -> Self {
        let size = ControlState {
            total: AtomicI64::new(total),
            reclaims_last_credit: AtomicI64::new(0),
            allows_backlog: AtomicI64::new(0),
            charges_untried: AtomicI64::new(0),
            calm: AtomicI64::new(0),
        };
        Pool {
            control_state: CachePadded(size),
            issued: CachePadded(AtomicI64::new(0)),
            sessions: CachePadded(AtomicI64::new(0)),
            unmet_demand: CachePadded(AtomicI64::new(0)),
            slots: std::array::from_fn(|_| CachePadded(AtomicI64::new(UNBOUNDED))),
        }
    }

    /// `c_total`: the load the server believes it can take.
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

    /// Credits that may still be issued; negative when too many are out.
    pub fn available_credits(&self) -> i64 {
        self.total() - self.issued()
    }

    /// `c_oc`: credits a session may hold beyond its known demand (Breakwater §3.2.2, eq. 4).
    pub fn overcommit(&self) -> i64 {
        let sessions = self.sessions().max(1);
        let open = self.available_credits();
        // The division is the dear part and rarely needed: most of the time fewer credits are open than sessions.
        if open < 2 * sessions { 1 } else { open / sessions }
    }

    /// A window changed by `change`.
    pub(crate) fn issue(&self, change: i64) {
        if change != 0 {
            self.issued.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Takes one credit if one is open. The credit is counted as issued from now on.
    pub(crate) fn try_take(&self) -> bool {
        // Compare-and-swap: two cores that wake sessions at the same time must not both take the last one.
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

    /// Whether a session gives its last credit back while more are out than the pool has. Under the delay signal it need
    /// not: drops take credits away. With plain locks nothing is dropped, and a pool that is smaller than the number of
    /// active sessions would have no effect.
    pub(crate) fn reclaims_last_credit(&self) -> bool {
        self.control_state.0.reclaims_last_credit.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_reclaims_last_credit(&self, binds: bool) {
        self.control_state.0.reclaims_last_credit.store(binds.into(), Ordering::Relaxed);
    }

    /// Whether cores can still be had for what waits, so that AQM leaves it to wait. Never without an allocator.
    pub(crate) fn allows_backlog(&self) -> bool {
        self.control_state.0.allows_backlog.load(Ordering::Relaxed) != 0
    }

    /// Whether what a session sends before it has had a credit takes one that is open.
    pub(crate) fn charges_untried(&self) -> bool {
        self.control_state.0.charges_untried.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_charges_untried(&self, distrusts: bool) {
        self.control_state.0.charges_untried.store(distrusts.into(), Ordering::Relaxed);
    }

    /// Whether no overload is detected, so that no request is rejected for its delay
    /// ([`super::overload`]). Never as published.
    pub(crate) fn is_calm(&self) -> bool {
        self.control_state.0.calm.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_calm(&self, calm: bool) {
        self.control_state.0.calm.store(calm.into(), Ordering::Relaxed);
    }

    /// Notes that a session waits for a credit and none is open.
    pub(super) fn record_unmet_demand(&self) {
        // Cores share this line: until the next tick takes the note, one store is enough.
        if self.unmet_demand.0.load(Ordering::Relaxed) == 0 {
            self.unmet_demand.0.store(1, Ordering::Relaxed);
        }
    }

    /// Whether a session has waited for a credit in vain since the last call.
    pub(super) fn take_unmet_demand(&self) -> bool {
        self.unmet_demand.0.load(Ordering::Relaxed) != 0 && self.unmet_demand.0.swap(0, Ordering::Relaxed) != 0
    }

    /// Takes a place for a request of a class, where those in the server are bounded.
    pub(super) fn try_enter(&self, class: usize) -> bool {
        let places = &self.slots[class].0;
        places.load(Ordering::Relaxed) == UNBOUNDED || places.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// Bounds the requests of a class that may come in before the next call; `None`: not. Requests that have been refused since the last
    /// one.
    pub(super) fn set_slots(&self, class: usize, places: Option<i64>) -> u64 {
        let wanted = places.unwrap_or(UNBOUNDED);
        let known = &self.slots[class].0;
        if wanted == UNBOUNDED && known.load(Ordering::Relaxed) == UNBOUNDED {
            return 0;
        }
        known.swap(wanted, Ordering::Relaxed).min(0).unsigned_abs()
    }

    pub(super) fn set_allows_backlog(&self, room: bool) {
        self.control_state.0.allows_backlog.store(room.into(), Ordering::Relaxed);
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
    fn overcommit_is_the_open_share_and_at_least_one() {
        for (total, sessions, expected) in [(10, 100, 1), (100, 100, 1), (199, 100, 1), (200, 100, 2), (950, 100, 9)] {
            assert_eq!(pool(total, sessions).overcommit(), expected);
        }
        assert_eq!(pool(10, 0).overcommit(), 10);
    }
}
