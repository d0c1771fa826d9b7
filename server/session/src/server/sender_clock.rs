//! Estimates the age of calls from their client's clock: one estimator per connection, pure, O(1).
//!
//! A call carries its send time, by a clock that the server does not know. The estimator takes the
//! fastest call so far as not delayed; the extra delay of later calls is their age. With a wrong
//! clock a client can change the ages of its own calls only. Kept only while a controller is in
//! shadow mode. Does not contain what the controller does with an age.

use leeward_core::units::{Nanos, Time};
use leeward_wire::Timestamp;

/// The greatest age that the estimator reports.
const OLDEST: Nanos = Nanos::from_secs(60);
/// A client's clock that runs this many times slower than the server's does not count nanoseconds.
const SLOWEST: u64 = 64;
/// Two clocks may drift apart by one part in this many; the minimum offset grows at this rate.
const DRIFT: u64 = 8_192;

/// Estimator of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderClock {
    first: Option<Sample>,
    drift_applied_at: Time,
    /// Minimum of the server's clock minus the client's timestamp, at the reading of a call.
    offset_min: i64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    received_at: Time,
    sent_at: u64,
}

impl SenderClock {
    /// Age of a call that is read now, by its client's clock; zero if that clock is unusable.
    pub(super) fn age(&mut self, read: Time, sent: Timestamp) -> Nanos {
        let ahead = read.0.wrapping_sub(sent.0).cast_signed();
        let Some(first) = self.first else {
            (self.first, self.drift_applied_at, self.offset_min) =
                (Some(Sample { received_at: read, sent_at: sent.0 }), read, ahead);
            return Nanos::ZERO;
        };
        let drift = (read.since(self.drift_applied_at).0 / DRIFT).cast_signed();
        if drift > 0 {
            (self.drift_applied_at, self.offset_min) = (read, self.offset_min.saturating_add(drift));
        }
        self.offset_min = self.offset_min.min(ahead);
        let passed = sent.0.wrapping_sub(first.sent_at).cast_signed();
        if passed < (read.since(first.received_at).0 / SLOWEST).cast_signed() {
            return Nanos::ZERO;
        }
        let age = u64::try_from(ahead.saturating_sub(self.offset_min)).unwrap_or(0);
        Nanos(age).min(OLDEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Ages of calls, in milliseconds, rounded because drift adds some microseconds. Each call has
    /// its read time and its send time, by the client's clock.
    fn ages(calls: &[(u64, u64)]) -> Vec<u64> {
        let mut clock = SenderClock::default();
        let mut age = |read, sent: u64| clock.age(Time(read * MS), Timestamp(sent.wrapping_mul(MS))).0;
        calls.iter().map(|(read, sent)| (age(*read, *sent) + MS / 2) / MS).collect()
    }

    #[test]
    fn an_age_is_the_delay_beyond_the_fastest_call() {
        // Clocks that began years apart, either way.
        for began in [0, 1 << 40, u64::MAX / MS - 5] {
            let sent = |at: u64| began.wrapping_add(at);
            let calls = [(1_000, sent(0)), (1_012, sent(10)), (1_040, sent(20)), (1_081, sent(80))];
            assert_eq!(ages(&calls), [0, 2, 20, 1]);
        }
        assert_eq!(ages(&[(1_000, 0), (1_100, 60), (1_150, 160), (1_200, 200)]), [0, 40, 0, 10], "a faster one came");
    }

    #[test]
    fn an_invalid_clock_gives_no_age() {
        assert_eq!(ages(&[(1, 7), (500, 7), (9_000, 7)]), [0, 0, 0], "always the same");
        let mut clock = SenderClock::default();
        let micros = (0..100).map(|at| clock.age(Time(at * 10 * MS), Timestamp(at * 10_000)));
        assert!(micros.max() == Some(Nanos::ZERO), "microseconds are no nanoseconds");
    }

    #[test]
    fn clock_drift_creates_no_age() {
        let mut clock = SenderClock::default();
        // 100 ppm slow, for an hour.
        let ages = (0..36_000_u64).map(|at| clock.age(Time(at * 100 * MS), Timestamp(at * 100 * MS / 10_000 * 9_999)));
        assert!(ages.max() < Some(Nanos::from_millis(1)));
    }

    proptest! {
        #[test]
        fn ages_are_bounded_for_any_clock(calls in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..50)) {
            let mut clock = SenderClock::default();
            for (read, sent) in calls {
                prop_assert!(clock.age(Time(read), Timestamp(sent)) <= OLDEST);
            }
        }
    }
}
