//! The queue's delay from the ages of requests as they leave it. Executors don't keep their order: one that has just come may be served
//! at once while others have waited for long, and the least age would say that nothing waits. Never here: where ages come from.

use leeward_core::units::{Nanos, Time};

/// So many requests in a row that have not waited show that nobody does.
const ENOUGH: u32 = 8;

/// The greatest age among the last [`ENOUGH`] to twice as many requests.
#[derive(Debug)]
pub(crate) struct MaxAge {
    /// Older findings are no news of now.
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

    /// A request leaves the queue at this age; returns the delay.
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

    /// The delay as it was last known.
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
    fn who_overtakes_does_not_hide_those_that_wait() {
        let ages: Vec<u64> = (0..60).map(|at| if at % 5 == 4 { 1 } else { 80 }).collect();
        assert!(delays(&ages)[1..].iter().all(|delay| *delay == 80));
    }

    #[test]
    fn a_queue_that_is_gone_is_known_to_be_soon() {
        let ages: Vec<u64> = (0..40).map(|at| if at < 10 { 80 } else { 1 }).collect();
        let delays = delays(&ages);
        assert_eq!(delays[15], 80);
        assert!(delays[26..].iter().all(|delay| *delay == 1), "{delays:?}");
    }

    #[test]
    fn nothing_is_known_after_a_silence() {
        let mut oldest = MaxAge::new(Nanos(100));
        assert_eq!(oldest.note(Time(5), Nanos(90)), Nanos(90));
        assert_eq!(oldest.delay(Time(105)), Nanos(90));
        assert_eq!(oldest.delay(Time(106)), Nanos::ZERO);
        assert_eq!(oldest.note(Time(300), Nanos(2)), Nanos(2));
    }
}
