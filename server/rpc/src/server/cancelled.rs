//! Calls that their clients have cancelled, until their turn has come: whichever thread takes a call from the queue asks here. Never here: what
//! a cancelled call's answer is (`protocol`).

use crate::wire::RequestId;
use leeward_engine::ConnectionId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Cancelled calls that are kept at a time. A further one is executed as if it had not been cancelled.
const CANCELLED_MAX: usize = 1_024;

/// Name of a call among all of a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    /// The connection's core.
    pub(crate) core: u32,
    /// The connection.
    pub(crate) connection: ConnectionId,
    /// The call on it.
    pub(crate) request: RequestId,
}

/// Cancelled calls of a server.
#[derive(Debug, Default)]
pub(crate) struct CancelledCalls {
    /// How many there are: mostly none, and then no thread takes the lock. A thread that misses one executes a call in vain.
    count: AtomicUsize,
    keys: Mutex<Vec<CallKey>>,
}

impl CancelledCalls {
    /// Notes a cancelled call. `false`: there is no room.
    pub(crate) fn note(&self, mark: CallKey) -> bool {
        let mut marks = self.lock();
        let has_room = marks.len() < CANCELLED_MAX;
        if has_room {
            marks.push(mark);
            self.count.store(marks.len(), Ordering::Relaxed);
        }
        has_room
    }

    /// Whether the call was cancelled. It is asked for once: its mark goes.
    pub(crate) fn take(&self, mark: &CallKey) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut marks = self.lock();
        let Some(place) = marks.iter().position(|one| one == mark) else { return false };
        marks.swap_remove(place);
        self.count.store(marks.len(), Ordering::Relaxed);
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
        let to = ConnectionId { slot, generation: 3 };
        CallKey { core: 1, connection: to, request: RequestId::new(request).unwrap() }
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
    fn a_flood_finds_no_room() {
        let cancels = CancelledCalls::default();
        assert!((1..=CANCELLED_MAX as u64).all(|request| cancels.note(mark(1, request))));
        assert!(!cancels.note(mark(1, 9_999)));
        assert!(cancels.take(&mark(1, 5)));
        assert!(cancels.note(mark(1, 9_999)));
    }
}
