//! Delay of a worker where requests have no age. A caller queues a task at the worker and reports
//! when it enters and leaves the queue. Does not contain the task.

use leeward_core::units::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// Value of `entered` while no task waits.
const NONE: u64 = u64::MAX;

/// Measures a delay: the age of the waiting task, or the wait of the last one.
#[derive(Debug)]
pub struct Probe {
    interval: Nanos,
    /// When the waiting task entered the queue.
    entered: AtomicU64,
    /// Wait of the last task, and when it was measured.
    last_delay: AtomicU64,
    measured_at: AtomicU64,
}

impl Probe {
    pub(crate) fn new(period: Nanos) -> Self {
        Probe {
            interval: period,
            entered: AtomicU64::new(NONE),
            last_delay: AtomicU64::new(0),
            measured_at: AtomicU64::new(0),
        }
    }

    /// Whether the caller should queue a task now. Reserves the probe: a caller that gets `true`
    /// must queue one.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let since = Time(self.measured_at.load(Ordering::Relaxed));
        let free = self.entered.load(Ordering::Relaxed) == NONE && now.since(since) >= self.interval;
        free && self.entered.compare_exchange(NONE, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Records that the task enters the queue.
    pub(crate) fn enter(&self, now: Time) {
        self.entered.store(now.0, Ordering::Relaxed);
    }

    /// Records that the task has left the queue.
    pub(crate) fn leave(&self, now: Time) {
        let entered = self.entered.load(Ordering::Relaxed);
        if entered == NONE {
            return;
        }
        let entered = Time(entered);
        self.last_delay.store(now.since(entered).0, Ordering::Relaxed);
        self.measured_at.store(now.0, Ordering::Relaxed);
        self.entered.store(NONE, Ordering::Relaxed);
    }

    /// Ends a task that will never report because its executor has ended.
    pub(crate) fn forget(&self) {
        self.entered.store(NONE, Ordering::Relaxed);
    }

    /// The delay at `now`. The age of a waiting task counts as soon as it exceeds the last task's
    /// wait.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        let found = Nanos(self.last_delay.load(Ordering::Relaxed));
        let at = Time(self.measured_at.load(Ordering::Relaxed));
        // A measurement expires after eight intervals plus its own length.
        let last = if now.since(at) <= self.interval * 8 + found { found } else { Nanos::ZERO };
        match self.entered.load(Ordering::Relaxed) {
            NONE => last,
            entered => now.since(Time(entered)).max(last),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pending_probe_already_counts_its_waiting_time() {
        let probe = Probe::new(Nanos(100));
        assert!(probe.is_due(Time(100)) && !probe.is_due(Time(300)), "one at a time");
        assert_eq!(probe.delay(Time(350)), Nanos(250));
        probe.enter(Time(400));
        probe.leave(Time(450));
        assert_eq!(probe.delay(Time(460)), Nanos(50));
        assert!(!probe.is_due(Time(540)) && probe.is_due(Time(550)));
        probe.forget();
        assert_eq!(probe.delay(Time(5_000)), Nanos::ZERO, "forgotten after a silence");
    }
}
