//! A timer that is precise to microseconds: a timer descriptor, because the runtime's own timers
//! count whole milliseconds.

use std::io;
use std::os::fd::OwnedFd;

use leeward_core::units::Nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer for one waiting task.
pub(crate) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Creates a timer within a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // Deprecated for descriptors that do not own their file; this one does. The replacement is
        // unsafe.
        #[allow(deprecated)]
        let registered = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Timer(registered))
    }

    /// Waits for `span`, at most an hour.
    pub(crate) async fn wait(&self, span: Nanos) -> io::Result<()> {
        // A span of 0 would switch the timer off.
        let span = span.0.clamp(1, 3_600_000_000_000);
        let value = Timespec { tv_sec: (span / 1_000_000_000) as i64, tv_nsec: (span % 1_000_000_000) as _ };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value: value })?;
        // The runtime watches for edges: setting the timer again is enough, its count is never
        // read.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_wait_ends_at_its_time_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let timer = Timer::new().unwrap();
            for _ in 0..3 {
                let begun = Instant::now();
                timer.wait(Nanos::from_micros(300)).await.unwrap();
                assert!(begun.elapsed().as_nanos() >= 300_000);
            }
        });
    }
}
