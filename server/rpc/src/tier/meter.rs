//! CPU time of a pool's thread, read at intervals: a reading costs as much as a small request.

use leeward_core::units::{Nanos, Time};
use leeward_runtime::Clock;
use nix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};

/// Shortest time between two readings.
const EVERY: Nanos = Nanos::from_millis(1);
/// Number of polls between two looks at the clock.
const TURNS: u32 = 1_024;

/// CPU time that a thread has reported.
#[derive(Debug, Default)]
pub(super) struct CpuMeter {
    reported: Nanos,
    read_at: Time,
    polls: u32,
}

impl CpuMeter {
    /// Counts a poll of a thread that may never sleep.
    pub(super) fn on_poll(&mut self, clock: &Clock, sum: &AtomicU64) {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(TURNS) {
            self.read(clock, sum);
        }
    }

    /// Adds the thread's CPU time since the last reading to `sum`.
    pub(super) fn read(&mut self, clock: &Clock, sum: &AtomicU64) {
        let now = clock.now();
        if now.since(self.read_at) < EVERY {
            return;
        }
        self.read_at = now;
        // Without this clock, threads report no CPU time.
        let Ok(time) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) else { return };
        let used = Nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64);
        sum.fetch_add(used.saturating_sub(self.reported).0, Ordering::Relaxed);
        self.reported = used;
    }
}
