//! The delay of a worker where requests have no age of their own: somebody lets a task wait in the worker's queue and tells
//! when it entered and left. Never here: the task.

use leeward_core::units::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// No task waits.
const NONE: u64 = u64::MAX;

/// A measurement at a time: the age of the task that waits, or of the last that did.
#[derive(Debug)]
pub struct Probe {
    interval: Nanos,
    /// When the waiting task entered the queue.
    entered: AtomicU64,
    /// Delay of the last, and when it was found.
    last_delay: AtomicU64,
    measured_at: AtomicU64,
}

impl Probe {
    pub(crate) fn new(every: Nanos) -> Self {
        Probe {
            interval: every,
            entered: AtomicU64::new(NONE),
            last_delay: AtomicU64::new(0),
            measured_at: AtomicU64::new(0),
        }
    }

    /// Whether a task should be sent into the queue now. The caller that is told so sends it.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let since = Time(self.measured_at.load(Ordering::Relaxed));
        let free = self.entered.load(Ordering::Relaxed) == NONE && now.since(since) >= self.interval;
        free && self.entered.compare_exchange(NONE, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The task enters the queue that counts.
    pub(crate) fn enter(&self, now: Time) {
        self.entered.store(now.0, Ordering::Relaxed);
    }

    /// The task has left the queue.
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

    /// The task will never report: its executor has ended.
    pub(crate) fn forget(&self) {
        self.entered.store(NONE, Ordering::Relaxed);
    }

    /// The delay as it is known now: the age of a task that waits counts as soon as it is more than the last one's.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        let found = Nanos(self.last_delay.load(Ordering::Relaxed));
        let at = Time(self.measured_at.load(Ordering::Relaxed));
        // What was found before a silence says nothing of now.
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
    fn a_task_that_waits_is_seen_before_it_reports() {
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
