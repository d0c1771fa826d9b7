//! Delay of a wait queue, estimated from the ages of requests as they leave it: their mean, as
//! important requests overtake others. Does not contain queues in order of arrival
//! ([`crate::max_age`]).

use leeward_core::units::{Nanos, Time};

/// Number of requests over which ages are averaged.
const MEAN_WINDOW: f64 = 32.0;

/// The mean age of requests that leave the queue.
///
/// By Little's law the mean age is the queue's length over its rate, in any order of service. It
/// equals the delay of the same queue in FIFO order. The greatest age grows with the share of
/// important requests: a controller that used it would reject too much.
#[derive(Debug)]
pub(crate) struct MeanAge {
    memory: Nanos,
    mean: f64,
    at: Time,
}

impl MeanAge {
    pub(crate) fn new(memory: Nanos) -> Self {
        MeanAge { memory, mean: 0.0, at: Time::ZERO }
    }

    /// Records that a request leaves the queue at this age; returns the delay.
    pub(crate) fn note(&mut self, now: Time, age: Nanos) -> Nanos {
        let before = self.delay(now).0 as f64;
        let weight = if before > 0.0 { 1.0 / MEAN_WINDOW } else { 1.0 };
        self.mean = before + weight * (age.0 as f64 - before);
        self.at = now;
        self.delay(now)
    }

    /// The last known delay.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        if now.since(self.at) <= self.memory { Nanos(self.mean as u64) } else { Nanos::ZERO }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn request_order_does_not_change_the_mean_delay() {
        let delays = |ages: [u64; 2]| {
            let mut delay = MeanAge::new(Nanos(1_000));
            (0..400u64).map(|at| delay.note(Time(at), Nanos(ages[at as usize % 2])).0).skip(200).collect::<Vec<_>>()
        };
        assert!(delays([800, 800]).iter().all(|delay| *delay == 800));
        assert!(delays([0, 1_600]).iter().all(|delay| (740..=860).contains(delay)), "{:?}", delays([0, 1_600]));
    }

    #[test]
    fn the_delay_is_zero_after_an_idle_interval() {
        let mut delay = MeanAge::new(Nanos(100));
        assert_eq!(delay.note(Time(5), Nanos(90)), Nanos(90), "the first is all that is known");
        assert_eq!((delay.delay(Time(105)), delay.delay(Time(106))), (Nanos(90), Nanos::ZERO));
        assert_eq!(delay.note(Time(300), Nanos(2)), Nanos(2));
    }
}
