//! Points in time and spans, in whole nanoseconds. The plant sets the zero point: simulated time
//! starts at 0, the real server's time at its start.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::time::Duration;

/// A point in time: nanoseconds since the plant started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span of time in nanoseconds. Arithmetic saturates: a span is never negative and never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Time {
    /// Start of the plant.
    pub const ZERO: Time = Time(0);
    /// Later than every event.
    pub const NEVER: Time = Time(u64::MAX);

    /// Time since `earlier`; zero if that is in the future (the clocks of two cores may differ
    /// slightly).
    pub fn since(self, earlier: Time) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Nanos {
    /// Zero time.
    pub const ZERO: Nanos = Nanos(0);
    /// Longer than every span.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// From whole microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Nanos(us * 1_000)
    }

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Nanos(ms * 1_000_000)
    }

    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Nanos(s * 1_000_000_000)
    }

    /// From seconds, rounded to the nearest nanosecond; negative and NaN give zero, too large gives
    /// [`Nanos::MAX`].
    pub fn from_secs_f64(seconds: f64) -> Self {
        Nanos((seconds * 1e9 + 0.5) as u64)
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// In microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Scaled by `factor` (≥ 0), rounded to the nearest nanosecond.
    pub fn scale(self, factor: f64) -> Self {
        Nanos((self.0 as f64 * factor + 0.5) as u64)
    }

    /// This span less `other`, never below zero.
    pub fn saturating_sub(self, other: Nanos) -> Self {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Nanos> for Time {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Nanos) {
        *self = *self - other;
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

impl From<Duration> for Nanos {
    /// A longer span than [`Nanos::MAX`] becomes that.
    fn from(span: Duration) -> Self {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    /// Prints in the largest unit that needs no more than three decimals: `80us`, `1.1ms`, `2s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A value that would round up to a thousand is printed in the next unit.
        let (unit, size) = match self.0 {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("us", 1_000),
            1_000_000..999_999_500 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        let rounded = (self.0 as f64 / size as f64 * 1e3).round() / 1e3;
        write!(f, "{rounded}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_in_the_customary_unit() {
        for (span, text) in [
            (Nanos(0), "0ns"),
            (Nanos(999), "999ns"),
            (Nanos::from_micros(80), "80us"),
            (Nanos::from_micros(1_100), "1.1ms"),
            (Nanos(999_999_499), "999.999ms"),
            (Nanos(999_999_500), "1s"),
            (Nanos(999_999), "999.999us"),
            (Nanos::from_secs(2), "2s"),
        ] {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn duration_arithmetic_saturates_at_the_maximum() {
        assert_eq!(Nanos::MAX * 2, Nanos::MAX);
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Time::NEVER + Nanos(1), Time::NEVER);
    }

    #[test]
    fn a_span_of_the_standard_library_that_is_too_long_is_the_longest() {
        let spans = [Duration::from_nanos(7), Duration::from_nanos(u64::MAX), Duration::MAX];
        assert_eq!(spans.map(Nanos::from), [Nanos(7), Nanos::MAX, Nanos::MAX]);
    }

    #[test]
    fn a_clock_that_runs_backwards_gives_zero() {
        assert_eq!(Time(5).since(Time(9)), Nanos::ZERO);
    }
}
