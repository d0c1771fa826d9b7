//! Which of several threads waits at the same sockets: one at most. The others wait for it to name its follower, so that what comes wakes
//! one thread and no herd.

use crate::sync::{AtomicUsize, Ordering};

/// Number of the watching thread plus one; zero: nobody watches.
#[derive(Debug)]
pub(crate) struct PollLeader(AtomicUsize);

impl PollLeader {
    pub(crate) fn new() -> Self {
        PollLeader(AtomicUsize::new(0))
    }

    /// Whether `thread` watches, from now on if nobody did.
    pub(crate) fn try_lead(&self, thread: usize) -> bool {
        let mine = thread + 1;
        let seen = self.0.load(Ordering::Relaxed);
        seen == mine || (seen == 0 && self.0.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok())
    }

    /// `thread` watches no longer. Whether it did: then the caller wakes a follower, which the fence of that wake-up orders after this.
    pub(crate) fn release(&self, thread: usize) -> bool {
        let was_mine = self.0.load(Ordering::Relaxed) == thread + 1;
        if was_mine {
            self.0.store(0, Ordering::Relaxed);
        }
        was_mine
    }

    /// Whether nobody watches. A thread asks once it has said that it is about to sleep.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
