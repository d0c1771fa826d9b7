//! Leadership among threads that wait at the same sockets: at most one thread waits there. The
//! others sleep until the leader releases, so that an event wakes one thread and not all.

use crate::sync::{AtomicUsize, Ordering};

/// Index of the leading thread plus one; zero: no leader.
#[derive(Debug)]
pub(crate) struct PollLeader(AtomicUsize);

impl PollLeader {
    pub(crate) fn new() -> Self {
        PollLeader(AtomicUsize::new(0))
    }

    /// Returns whether `thread` leads. It becomes the leader if there was none.
    pub(crate) fn try_lead(&self, thread: usize) -> bool {
        let mine = thread + 1;
        let seen = self.0.load(Ordering::Relaxed);
        seen == mine || (seen == 0 && self.0.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok())
    }

    /// Releases the leadership of `thread`. Returns whether it was the leader. The caller then
    /// wakes a follower, and the fence of that wake-up orders it after this.
    pub(crate) fn release(&self, thread: usize) -> bool {
        let was_mine = self.0.load(Ordering::Relaxed) == thread + 1;
        if was_mine {
            self.0.store(0, Ordering::Relaxed);
        }
        was_mine
    }

    /// Returns whether there is no leader. A thread asks after it has announced its sleep.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
