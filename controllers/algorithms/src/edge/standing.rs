//! The standing delay: the minimum of the samples of an interval. A burst that cores work off has a
//! delay but leaves none standing (RFC 8289 §3). Does not contain reactions to it.

use leeward_core::units::{Nanos, Time};

/// Windowed minimum in two halves: it covers between one and two halves of the interval.
pub(super) struct StandingDelay {
    half: Nanos,
    start: Time,
    previous: Nanos,
    current: Nanos,
}

impl StandingDelay {
    /// Creates a window of `interval`. Until one half of it has passed, no delay stands.
    pub(super) fn new(interval: Nanos) -> Self {
        StandingDelay {
            half: (interval / 2).max(Nanos(1)),
            start: Time::ZERO,
            previous: Nanos::ZERO,
            current: Nanos::MAX,
        }
    }

    /// Takes a sample; returns the standing delay.
    pub(super) fn record(&mut self, now: Time, sample: Nanos) -> Nanos {
        let passed = now.since(self.start);
        if passed >= self.half {
            // After a silence longer than the interval, only this sample is known.
            self.previous = if passed >= self.half * 2 { sample } else { self.current };
            self.current = Nanos::MAX;
            self.start = now;
        }
        self.current = self.current.min(sample);
        self.current.min(self.previous)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn standing_delay(samples: impl Iterator<Item = (u64, u64)>) -> u64 {
        let mut standing = StandingDelay::new(Nanos(100));
        samples.map(|(at, sample)| standing.record(Time(at), Nanos(sample)).0).last().unwrap()
    }

    #[test]
    fn a_draining_burst_has_no_standing_delay() {
        assert_eq!(standing_delay((0..100).map(|at| (at * 10, if at % 5 == 0 { 0 } else { 900 }))), 0);
    }

    #[test]
    fn the_standing_delay_is_the_minimum_of_the_interval() {
        assert_eq!(standing_delay((0..100).map(|at| (at * 10, 300 + at % 7))), 300);
    }

    #[test]
    fn one_sample_of_an_empty_queue_expires_after_the_interval() {
        let samples = |until: u64| (0..until).map(|at| (at * 10, if at == 20 { 0 } else { 500 }));
        assert_eq!(standing_delay(samples(23)), 0);
        assert_eq!(standing_delay(samples(35)), 500);
    }
}
