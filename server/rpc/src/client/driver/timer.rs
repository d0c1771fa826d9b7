//! A timer among the sockets, with microsecond precision.
//!
//! A poll alone waits in whole milliseconds, many times a request's duration.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use leeward_core::units::{Nanos, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

pub(crate) struct Timer {
    descriptor: TimerFd,
    /// Time at which the timer fires; `NEVER` if it is not set.
    armed: Time,
}

impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let descriptor = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // The poll is edge-triggered: setting the timer again is enough, and its counter is never
        // read.
        registry.register(&mut SourceFd(&descriptor.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timer { descriptor, armed: Time::NEVER })
    }

    /// Records that the timer has fired. The time alone does not show it: this clock and the
    /// system's may differ slightly.
    pub(crate) fn on_fired(&mut self) {
        self.armed = Time::NEVER;
    }

    /// Sets the timer to fire at `at` or before. A timer that is set too early stays, and causes an
    /// idle wake-up.
    pub(crate) fn arm(&mut self, now: Time, at: Time) -> io::Result<()> {
        if at < self.armed {
            // A span of 0 would disarm the timer; no wait is longer than an hour.
            let span = at.since(now).0.clamp(1, Nanos::from_secs(3_600).0);
            let expiration = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(span)));
            self.descriptor.set(expiration, TimerSetTimeFlags::empty())?;
            self.armed = now + Nanos(span);
        }
        Ok(())
    }
}
