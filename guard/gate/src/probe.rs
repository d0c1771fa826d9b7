//! Delay of an executor where requests have no age. A caller queues a task at the executor and
//! reports when it enters and leaves the queue. Does not contain the task.
//!
//! Each thread has a probe of its own: threads may belong to different executors, and one that is
//! busy, or is driven no more, says nothing of the others.

use leeward_core::units::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// Value of `entered` while no task waits.
const NONE: u64 = u64::MAX;

/// Number of a thread's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeId(usize);

impl ProbeId {
    /// Largest number of probes; further threads share them.
    pub const COUNT: usize = 64;

    /// That of the thread with this number.
    pub(crate) fn of_thread(thread: usize) -> Self {
        ProbeId(thread % ProbeId::COUNT)
    }

    /// The number, below [`ProbeId::COUNT`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// The probes of all threads.
#[derive(Debug)]
pub(crate) struct Probes(Box<[Probe]>);

impl Probes {
    pub(crate) fn new(interval: Nanos) -> Self {
        Probes((0..ProbeId::COUNT).map(|_| Probe::new(interval)).collect())
    }

    pub(crate) fn get(&self, id: ProbeId) -> &Probe {
        &self.0[id.0]
    }

    /// The longest delay. A waiting task counts where requests have asked lately.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        let delay = |probe: &Probe| if probe.is_used(now) { probe.delay(now) } else { probe.last(now) };
        self.0.iter().map(delay).max().unwrap_or(Nanos::ZERO)
    }
}

/// Measures a delay: the age of the waiting task, or the wait of the last one.
#[derive(Debug)]
pub(crate) struct Probe {
    interval: Nanos,
    /// When the waiting task entered the queue.
    entered: AtomicU64,
    /// Wait of the last task, and when it was measured.
    last_delay: AtomicU64,
    measured_at: AtomicU64,
    /// When a request has last asked whether one is due.
    asked: AtomicU64,
}

impl Probe {
    pub(crate) fn new(period: Nanos) -> Self {
        Probe {
            interval: period,
            asked: AtomicU64::new(0),
            entered: AtomicU64::new(NONE),
            last_delay: AtomicU64::new(0),
            measured_at: AtomicU64::new(0),
        }
    }

    /// Whether the caller should queue a task now. Reserves the probe: a caller that gets `true`
    /// must queue one.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.asked.store(now.0, Ordering::Relaxed);
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

    /// Whether a task waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.entered.load(Ordering::Relaxed) != NONE
    }

    /// Whether requests have asked in the last eight intervals.
    fn is_used(&self, now: Time) -> bool {
        now.since(Time(self.asked.load(Ordering::Relaxed))) <= self.interval * 8
    }

    /// The delay at `now`. The age of a waiting task counts as soon as it exceeds the last task's
    /// wait.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        match self.entered.load(Ordering::Relaxed) {
            NONE => self.last(now),
            entered => now.since(Time(entered)).max(self.last(now)),
        }
    }

    /// Wait of the last task. It expires after eight intervals plus its own length.
    fn last(&self, now: Time) -> Nanos {
        let found = Nanos(self.last_delay.load(Ordering::Relaxed));
        let at = Time(self.measured_at.load(Ordering::Relaxed));
        if now.since(at) <= self.interval * 8 + found { found } else { Nanos::ZERO }
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

    #[test]
    fn a_probe_that_never_ends_says_nothing_of_other_threads() {
        let probes = Probes::new(Nanos(100));
        let (first, second) = (probes.get(ProbeId::of_thread(0)), probes.get(ProbeId::of_thread(1)));
        assert!(first.is_due(Time(100)) && second.is_due(Time(100)));
        second.leave(Time(110));
        assert!(second.is_due(Time(9_900)));
        second.leave(Time(9_910));
        assert_eq!((first.delay(Time(10_000)), second.delay(Time(10_000))), (Nanos(9_900), Nanos(10)));
        assert_eq!(probes.delay(Time(10_000)), Nanos(10), "nobody asks the first");
    }
}
