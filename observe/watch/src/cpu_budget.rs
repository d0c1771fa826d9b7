//! The observer's share of a CPU, and how polls and other tasks divide it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Share of a CPU that an observer may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Share {
    /// For a watch that goes on: 0.8 of a hundredth.
    pub const CONTINUOUS: Share = Share(0.008);
    /// For a look of a few seconds.
    pub const ONCE: Share = Share(0.08);
}

/// Part of the share that polls may take. Periodic tasks take the rest.
pub(crate) const POLLS: f64 = 0.5;

/// A task that runs less often than every poll: the dearer it is, the less often.
#[derive(Debug)]
pub(crate) struct PeriodicTask {
    /// Shortest time between two runs.
    shortest: Duration,
    /// Part of the observer's share that it may take.
    part: f64,
    pub(crate) last: Option<Duration>,
    pub(crate) cost: Duration,
}

impl PeriodicTask {
    pub(crate) const fn new(shortest_ms: u64, part: f64) -> PeriodicTask {
        PeriodicTask { shortest: Duration::from_millis(shortest_ms), part, last: None, cost: Duration::ZERO }
    }

    /// Whether it is due at the time `now`, given what it cost last time.
    pub(crate) fn is_due(&self, now: Duration, share: Share) -> bool {
        let after = self.shortest.max(self.cost.div_f64((share.0 * self.part).max(1e-4)));
        self.last.is_none_or(|last| now.saturating_sub(last) >= after)
    }

    /// Notes that it ran at the time `now`, from the CPU time `began` on; returns its cost.
    pub(crate) fn done(&mut self, now: Duration, began: Duration) -> Duration {
        self.last = Some(now);
        self.cost = own_cpu().saturating_sub(began);
        self.cost
    }
}

/// CPU time of this thread.
pub(crate) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_task_runs_less_often() {
        let ms = Duration::from_millis;
        let mut task = PeriodicTask::new(100, 0.5);
        assert!(task.is_due(ms(0), Share(0.01)), "it has never run");
        task.last = Some(ms(0));
        assert!(!task.is_due(ms(99), Share(0.01)) && task.is_due(ms(100), Share(0.01)));
        // 5 ms are half a hundredth of a second.
        task.cost = ms(5);
        assert!(!task.is_due(ms(999), Share(0.01)) && task.is_due(ms(1000), Share(0.01)));
    }
}
