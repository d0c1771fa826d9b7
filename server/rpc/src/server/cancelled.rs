//! Calls that their clients have cancelled and that still wait in the queue: each thread that
//! dequeues a call checks here.
//!
//! Does not contain the response to a cancelled call (`protocol`).

use crate::wire::RequestId;
use leeward_engine::ConnectionId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of recorded calls. A further cancelled call is executed all the same.
const CANCELLED_MAX: usize = 1_024;

/// Identifies a call among all calls of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    /// Core of the connection.
    pub(crate) core: u32,
    /// Connection of the call.
    pub(crate) connection: ConnectionId,
    /// Request id on the connection.
    pub(crate) request: RequestId,
}

/// Cancelled calls of a server.
#[derive(Debug, Default)]
pub(crate) struct CancelledCalls {
    /// Number of keys: mostly 0, and then no thread takes the lock. A thread that misses a key
    /// executes one call needlessly.
    count: AtomicUsize,
    keys: Mutex<Vec<CallKey>>,
}

impl CancelledCalls {
    /// Records a cancelled call. Returns `false` if the list is full.
    pub(crate) fn note(&self, key: CallKey) -> bool {
        let mut keys = self.lock();
        let has_space = keys.len() < CANCELLED_MAX;
        if has_space {
            keys.push(key);
            self.count.store(keys.len(), Ordering::Relaxed);
        }
        has_space
    }

    /// Removes the key of a dequeued call. Returns whether the call was cancelled.
    pub(crate) fn take(&self, key: &CallKey) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut keys = self.lock();
        let Some(index) = keys.iter().position(|other| other == key) else { return false };
        keys.swap_remove(index);
        self.count.store(keys.len(), Ordering::Relaxed);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CallKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn mark(slot: u32, request: u64) -> CallKey {
        let connection_id = ConnectionId { slot, generation: 3 };
        CallKey { core: 1, connection: connection_id, request: RequestId::new(request).unwrap() }
    }

    #[test]
    fn a_cancelled_call_is_found_once_and_no_other() {
        let cancels = CancelledCalls::default();
        assert!(!cancels.take(&mark(1, 7)));
        assert!(cancels.note(mark(1, 7)));
        for other in [mark(2, 7), mark(1, 8), CallKey { core: 0, ..mark(1, 7) }] {
            assert!(!cancels.take(&other));
        }
        assert!(cancels.take(&mark(1, 7)));
        assert!(!cancels.take(&mark(1, 7)));
    }

    #[test]
    fn the_number_of_cancelled_calls_is_limited() {
        let cancels = CancelledCalls::default();
        assert!((1..=CANCELLED_MAX as u64).all(|request| cancels.note(mark(1, request))));
        assert!(!cancels.note(mark(1, 9_999)));
        assert!(cancels.take(&mark(1, 5)));
        assert!(cancels.note(mark(1, 9_999)));
    }
}
