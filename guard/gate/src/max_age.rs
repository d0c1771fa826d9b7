//! Queue delay as the greatest age of the requests that lately left the queue. Executors don't keep
//! FIFO order: they may serve a new request at once while others have waited for long. The least
//! age would then show no delay. Does not contain the source of the ages.

use leeward_core::units::{Nanos, Time};

/// Requests in a row without a wait that show that the queue is empty.
const ENOUGH: u32 = 8;

/// The greatest age among the last [`ENOUGH`] to twice as many requests.
#[derive(Debug)]
pub(crate) struct MaxAge {
    /// Age after which a measurement is ignored.
    memory: Nanos,
    greatest: Nanos,
    seen: u32,
    began: Time,
    before: Nanos,
    before_at: Time,
}

impl MaxAge {
    pub(crate) fn new(memory: Nanos) -> Self {
        let (greatest, before) = (Nanos::ZERO, Nanos::ZERO);
        MaxAge { memory, greatest, seen: 0, began: Time::ZERO, before, before_at: Time::ZERO }
    }

    /// Records that a request leaves the queue at this age; returns the delay.
    pub(crate) fn note(&mut self, now: Time, age: Nanos) -> Nanos {
        if self.seen >= ENOUGH {
            (self.before, self.before_at) = (self.greatest, now);
            self.seen = 0;
        }
        if self.seen == 0 || now.since(self.began) > self.memory {
            (self.greatest, self.seen, self.began) = (Nanos::ZERO, 0, now);
        }
        self.seen += 1;
        self.greatest = self.greatest.max(age);
        self.delay(now)
    }

    /// The last known delay.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        let fresh = |delay, at| if now.since(at) <= self.memory { delay } else { Nanos::ZERO };
        fresh(self.greatest, self.began).max(fresh(self.before, self.before_at))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn delays(ages: &[u64]) -> Vec<u64> {
        let mut oldest = MaxAge::new(Nanos(100));
        ages.iter().enumerate().map(|(at, age)| oldest.note(Time(at as u64), Nanos(*age)).0).collect()
    }

    #[test]
    fn overtaking_requests_do_not_hide_older_waiting_ones() {
        let ages: Vec<u64> = (0..60).map(|at| if at % 5 == 4 { 1 } else { 80 }).collect();
        assert!(delays(&ages)[1..].iter().all(|delay| *delay == 80));
    }

    #[test]
    fn the_delay_drops_soon_after_a_queue_has_drained() {
        let ages: Vec<u64> = (0..40).map(|at| if at < 10 { 80 } else { 1 }).collect();
        let delays = delays(&ages);
        assert_eq!(delays[15], 80);
        assert!(delays[26..].iter().all(|delay| *delay == 1), "{delays:?}");
    }

    #[test]
    fn the_delay_is_zero_after_an_idle_interval() {
        let mut oldest = MaxAge::new(Nanos(100));
        assert_eq!(oldest.note(Time(5), Nanos(90)), Nanos(90));
        assert_eq!(oldest.delay(Time(105)), Nanos(90));
        assert_eq!(oldest.delay(Time(106)), Nanos::ZERO);
        assert_eq!(oldest.note(Time(300), Nanos(2)), Nanos(2));
    }
}
