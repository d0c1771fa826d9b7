//! Timers for tasks, to the microsecond; a poll alone waits in whole milliseconds. It is an event
//! source of a core, for servers whose cores sleep while requests wait for a time. Does not contain
//! a task's work.

use crate::event_source::{EventSource, PollStatus};
use leeward_core::units::{Nanos, Time};
use leeward_runtime::Clock;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Timer for a core's tasks. Clones share it: one is for the tasks, one is the core's event source.
#[derive(Clone)]
pub struct TaskTimer(Arc<TimerState>);

struct TimerState {
    clock: Clock,
    timer: TimerFd,
    set: Mutex<BinaryHeap<Reverse<Entry>>>,
}

/// A task that continues at `at`.
struct Entry {
    at: Time,
    waker: Waker,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl TaskTimer {
    /// Makes a timer without entries.
    ///
    /// # Errors
    /// The system has no timer left.
    pub fn new() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        Ok(TaskTimer(Arc::new(TimerState { clock: Clock::start(), timer, set: Mutex::new(BinaryHeap::new()) })))
    }

    /// Sleeps for `span`, in a task of the core that polls this source.
    pub async fn sleep(&self, span: Nanos) {
        let at = self.0.clock.now() + span;
        let mut is_set = false;
        poll_fn(|context| {
            let now = self.0.clock.now();
            if now >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_set, true) {
                self.0.set(now, Entry { at, waker: context.waker().clone() });
            }
            Poll::Pending
        })
        .await;
    }
}

impl TimerState {
    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Entry>>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: Time, entry: Entry) {
        let mut set = self.lock();
        let is_next = set.peek().is_none_or(|Reverse(next)| entry.at < next.at);
        let at = entry.at;
        set.push(Reverse(entry));
        if is_next {
            self.arm(now, at);
        }
    }

    fn arm(&self, now: Time, at: Time) {
        // A span of 0 would disarm the timer.
        let span = Duration::from_nanos(at.since(now).0.max(1));
        // The system rejects only spans that it could not wait for.
        let _ = self.timer.set(Expiration::OneShot(TimeSpec::from_duration(span)), TimerSetTimeFlags::empty());
    }
}

impl EventSource for TaskTimer {
    fn descriptor(&self) -> RawFd {
        self.0.timer.as_fd().as_raw_fd()
    }

    fn poll(&mut self) -> PollStatus {
        let TimerState { clock, .. } = &*self.0;
        loop {
            let now = clock.now();
            let mut set = self.0.lock();
            match set.peek() {
                Some(Reverse(next)) if next.at <= now => {}
                // The poll is edge-triggered. Setting the timer again is enough, and its count is
                // never read.
                Some(Reverse(next)) => {
                    self.0.arm(now, next.at);
                    return PollStatus::Idle;
                }
                None => return PollStatus::Idle,
            }
            let due = set.pop();
            drop(set);
            if let Some(Reverse(Entry { waker, .. })) = due {
                waker.wake();
            }
        }
    }
}
