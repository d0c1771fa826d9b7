//! The queue that would be if decisions were enforced. Without it a rehearsal would see an overload that never ends, because
//! nothing of it is refused. Never here: decisions.

use leeward_control::units::{Nanos, Time};

/// Work that is ahead of the next request, in nanoseconds of all workers.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    work: u64,
    at: Time,
}

impl Twin {
    /// The delay that a request would have met.
    pub(crate) fn delay(&mut self, now: Time) -> Nanos {
        let passed = now.since(self.at);
        self.work = self.work.saturating_sub(passed.0);
        self.at = self.at.max(now);
        Nanos(self.work)
    }

    /// A request of this time on one of `workers` would have been admitted.
    pub(crate) fn admit(&mut self, time: Nanos, workers: usize) {
        self.work = self.work.saturating_add(time.0 / workers.max(1) as u64);
    }
}
