//! Waits for sockets and for a time, to the microsecond: epoll, with a timer descriptor among the
//! sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use leeward_core::units::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Sockets per system call. Not more, because requests may become due while these are read.
const EVENTS_MAX: usize = 64;

/// The timer's mark among the sockets' numbers.
const TIMER: u64 = u64::MAX;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    NonBlocking,
    /// Until a socket is ready or this time has passed; the wait may be slightly shorter.
    For(Nanos),
}

/// Reports ready sockets. Level-triggered: a socket with unread bytes is reported again.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // Edge-triggered: setting the timer again is enough, its count is never read.
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Poller { epoll, timer, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `socket` for readability, under this `number`.
    pub(crate) fn add(&self, socket: &impl AsFd, number: u32) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(number.into()), EventFlags::IN)?)
    }

    /// Starts or stops watching for writability.
    pub(crate) fn watch_writable(&self, socket: &impl AsFd, number: u32, writable: bool) -> io::Result<()> {
        let flags = if writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(number.into()), flags)?)
    }

    /// Waits, and returns the numbers of sockets that are ready or broken.
    pub(crate) fn wait(&mut self, wait: Wait, ready: &mut Vec<u32>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = match wait {
            Wait::NonBlocking | Wait::For(Nanos::ZERO) => Some(&now),
            Wait::For(span) => {
                self.set_timer(span)?;
                None
            }
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        ready.extend(
            self.events.iter().map(|event| event.data.u64()).filter(|mark| *mark != TIMER).map(|mark| mark as u32),
        );
        Ok(())
    }

    fn set_timer(&self, span: Nanos) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Waits are shorter than an hour; a span of 0 would switch the timer off.
        let span = span.0.clamp(1, 3_600_000_000_000);
        let value = Timespec { tv_sec: (span / 1_000_000_000) as i64, tv_nsec: (span % 1_000_000_000) as _ };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_wait_ends_at_its_timeout_and_not_before() {
        let mut poller = Poller::new().unwrap();
        for _ in 0..3 {
            let begun = Instant::now();
            poller.wait(Wait::For(Nanos::from_micros(300)), &mut Vec::new()).unwrap();
            assert!(begun.elapsed().as_nanos() >= 300_000);
        }
        poller.wait(Wait::NonBlocking, &mut Vec::new()).unwrap();
    }
}
