//! Time-out of a request, from the round trips of earlier requests.

use leeward_core::units::Nanos;

/// The shortest time-out. RFC 6298 §2.4 has one second, for networks with a round trip of a tenth
/// of that; the objective here is far below a millisecond.
pub const TIMEOUT_MIN: Nanos = Nanos::from_millis(1);
/// The longest time-out.
pub const TIMEOUT_MAX: Nanos = Nanos::from_millis(200);
/// Time-out before the first measurement.
const FIRST: Nanos = Nanos::from_millis(50);

/// Longer round trips count as this long.
const LONGEST: Nanos = Nanos::from_secs(60);

/// Smoothed round trip and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    smoothed: u64,
    variation: u64,
}

impl RttEstimator {
    /// Adds a round trip. The caller must know which copy was answered (Karn's rule); otherwise the
    /// round trip is ambiguous.
    pub fn sample(&mut self, trip: Nanos) {
        let trip = trip.0.clamp(1, LONGEST.0);
        if self.smoothed == 0 {
            // RFC 6298 §2.2.
            (self.smoothed, self.variation) = (trip, trip / 2);
        } else {
            // RFC 6298 §2.3, in this order: alpha = 1/8, beta = 1/4.
            self.variation = self.variation - self.variation / 4 + self.smoothed.abs_diff(trip) / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + trip / 8;
        }
    }

    /// Wait for an answer after `tries` retransmissions: doubled each time (RFC 6298 §5.5).
    pub fn timeout(&self, tries: u32) -> Nanos {
        let once = if self.smoothed == 0 { FIRST.0 } else { (self.smoothed + 4 * self.variation).max(TIMEOUT_MIN.0) };
        Nanos(once.saturating_mul(1 << tries.min(10)).min(TIMEOUT_MAX.0))
    }

    /// The smoothed round trip; zero before the first measurement.
    pub fn smoothed(&self) -> Nanos {
        Nanos(self.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_follows_the_round_trips() {
        let mut trip = RttEstimator::default();
        assert_eq!(trip.timeout(0), FIRST);
        trip.sample(Nanos::from_millis(4));
        assert_eq!(trip.timeout(0), Nanos::from_millis(12), "R + 4 R/2");
        assert_eq!(trip.timeout(2), Nanos::from_millis(48));
        assert_eq!(trip.timeout(u32::MAX), TIMEOUT_MAX);
        for _ in 0..200 {
            trip.sample(Nanos::from_micros(40));
        }
        assert_eq!(trip.timeout(0), TIMEOUT_MIN);
        assert_eq!(trip.timeout(3), Nanos(8 * TIMEOUT_MIN.0));
        trip.sample(Nanos::MAX);
        assert_eq!(trip.timeout(0), TIMEOUT_MAX, "no overflow");
    }
}
