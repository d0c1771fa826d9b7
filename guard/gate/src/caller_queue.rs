//! A queue of the caller's own behind the gate, such as that of a pool of threads: how long its
//! oldest request waits. Does not contain queues in front of the gate ([`crate::delay`]).
//!
//! The gate sees which requests begin, and not their order. The age of the one that began last, and
//! the time since then, bound the age of the oldest one that waits, in the order of arrival.

use leeward_core::units::{Nanos, Time};

/// The queue, as far as requests are reported to wait in it.
#[derive(Debug, Default)]
pub(crate) struct CallerQueue {
    waiting: u64,
    /// Whether a request was reported to begin. A caller that reports none has no such queue.
    has_starts: bool,
    /// Age of the request that began last, and when that was.
    age: Nanos,
    at: Time,
}

impl CallerQueue {
    /// Records a request that begins to wait.
    pub(crate) fn enter(&mut self, now: Time) {
        if self.waiting == 0 {
            (self.age, self.at) = (Nanos::ZERO, now);
        }
        self.waiting += 1;
    }

    /// Records that a waiting request begins at this age.
    pub(crate) fn start(&mut self, now: Time, age: Nanos) {
        self.waiting = self.waiting.saturating_sub(1);
        (self.has_starts, self.age, self.at) = (true, age, now);
    }

    /// Records that a waiting request ends, and never began.
    pub(crate) fn leave(&mut self, now: Time) {
        self.waiting = self.waiting.saturating_sub(1);
        (self.age, self.at) = (Nanos::ZERO, now);
    }

    /// Wait of the oldest request; zero without one.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        if self.waiting > 0 && self.has_starts { self.age + now.since(self.at) } else { Nanos::ZERO }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn us(us: u64) -> Time {
        Time(us * 1_000)
    }

    #[test]
    fn the_delay_is_that_of_the_oldest_that_waits() {
        let mut queue = CallerQueue::default();
        (0..4).for_each(|at| queue.enter(us(at * 10)));
        assert_eq!(queue.delay(us(50)), Nanos::ZERO, "nobody says that requests begin");
        queue.start(us(50), Nanos::from_micros(50));
        assert_eq!(queue.delay(us(50)), Nanos::from_micros(50));
        // No thread takes up another one for long.
        assert_eq!(queue.delay(us(900)), Nanos::from_micros(900));
        queue.start(us(900), Nanos::from_micros(890));
        queue.leave(us(910));
        assert_eq!(queue.delay(us(910)), Nanos::ZERO, "one that gave up says nothing of the next one");
        queue.start(us(930), Nanos::from_micros(900));
        assert_eq!(queue.delay(us(5_000)), Nanos::ZERO, "nobody waits");
        queue.enter(us(6_000));
        assert_eq!(queue.delay(us(6_002)), Nanos::from_micros(2));
    }
}
