//! The timers of all cores: each core's own queue, and the wake-up of that core.

use super::queue::{SetOutcome, TimerKey, TimerQueue};
use crate::clock::Clock;
use crate::context::{self, CallerLocation};
use crate::parking::Parking;
use leeward_core::units::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// Result of registering a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterOutcome {
    Waits,
    /// The server has ended.
    Closed,
}

/// Timers of a core. Its sleeps share these, and may be on any thread.
pub(crate) struct CoreTimers {
    core: usize,
    clock: Clock,
    parking: Arc<Parking>,
    queue: TimerQueue,
}

impl CoreTimers {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Registers `waker` for `deadline`. `key` is the timer's, if it was registered before.
    pub(crate) fn set(self: &Arc<Self>, key: &mut Option<TimerKey>, deadline: Time, waker: &Waker) -> RegisterOutcome {
        match self.queue.set(key, deadline, waker) {
            SetOutcome::Closed => return RegisterOutcome::Closed,
            // A caller on another thread: the core may be sleeping past this timer.
            SetOutcome::First if context::caller_location(self) == CallerLocation::OtherThread => {
                self.parking.wake(self.core);
            }
            SetOutcome::First | SetOutcome::Later => {}
        }
        RegisterOutcome::Waits
    }

    pub(crate) fn clear(&self, key: TimerKey) {
        self.queue.clear(key);
    }
}

/// Timers of all cores, with an entry per core.
pub(crate) struct Timers {
    cores: Vec<Arc<CoreTimers>>,
}

impl Timers {
    pub(crate) fn new(cores: usize, clock: &Clock, parking: &Arc<Parking>) -> Self {
        let timers = |core| {
            let (clock, parking) = (clock.clone(), Arc::clone(parking));
            Arc::new(CoreTimers { core, clock, parking, queue: TimerQueue::new() })
        };
        Timers { cores: (0..cores).map(timers).collect() }
    }

    /// Timers of `core`.
    pub(crate) fn of(&self, core: usize) -> &Arc<CoreTimers> {
        &self.cores[core]
    }

    /// Deadline of `core`'s next timer.
    pub(crate) fn next(&self, core: usize) -> Time {
        self.cores[core].queue.next()
    }

    /// Fires `core`'s due timers. Returns whether there was any.
    pub(crate) fn fire(&self, core: usize, now: Time) -> bool {
        self.cores[core].queue.fire(now, wake)
    }

    /// Fires the due timers of the next core that has any; that core is busy, or has ended.
    pub(crate) fn fire_others(&self, core: usize, now: Time) -> bool {
        let cores = self.cores.len();
        (1..cores).any(|step| self.fire((core + step) % cores, now))
    }

    /// Ends all timers, since no core runs any more.
    pub(crate) fn close(&self) {
        self.cores.iter().for_each(|core| core.queue.close(wake));
    }
}

/// Wakes a waker, which may be foreign code. Its panic must not end the core.
fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
