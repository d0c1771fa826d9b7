//! Estimates of a class's mean time on a core. Does not contain the plant's measurement.

use leeward_core::sync::{AtomicU64, Ordering};
use leeward_core::units::{Cost, Nanos};

/// Samples before an estimate is used; until then a class costs as much as an ordinary request.
const MIN_SAMPLES: u64 = 32;
/// Samples that suffice if their mean is beyond a caller's bound: waiting for more costs the most.
const MIN_LONG_SAMPLES: u64 = 4;
/// Samples from which a new one has a fixed weight; before that the weight is 1 / (samples so far).
const WEIGHT_SAMPLES: u64 = 64;
/// What a sample's distance from the mean is divided by.
const DIVISOR: i64 = WEIGHT_SAMPLES as i64;
/// The same for a request that was admitted to learn whether it has become faster: such are few.
const TRIAL_DIVISOR: i64 = 8;

/// Bits of the mean below a nanosecond. Whole numbers take a fraction of the time that conversions
/// from floating point do, and requests read several estimates each.
const FRACTION_BITS: u32 = 20;

/// Estimated time of one class of requests on a core. Threads share it: an update that loses a race
/// loses one sample.
#[derive(Debug, Default)]
pub struct CostEstimate {
    /// Mean in 2^-20 ns.
    mean: AtomicU64,
    samples: AtomicU64,
}

impl CostEstimate {
    /// Records a measured time.
    #[inline]
    pub fn record(&self, time: Nanos) {
        self.record_weighted::<DIVISOR>(time);
    }

    /// Records the time of a request that this estimate alone would have rejected.
    pub fn record_trial(&self, time: Nanos) {
        self.record_weighted::<TRIAL_DIVISOR>(time);
    }

    #[inline]
    fn record_weighted<const DIVISOR: i64>(&self, time: Nanos) {
        // Ignores a jump of the clock.
        if time > Nanos::from_secs(60) {
            return;
        }
        let samples = self.samples.load(Ordering::Relaxed);
        let mean = self.mean.load(Ordering::Relaxed) as i64;
        let distance = (time.0 << FRACTION_BITS) as i64 - mean;
        let step = if samples < WEIGHT_SAMPLES {
            self.samples.store(samples + 1, Ordering::Relaxed);
            distance / DIVISOR.min(samples as i64 + 1)
        } else {
            distance / DIVISOR
        };
        self.mean.store((mean + step) as u64, Ordering::Relaxed);
    }

    /// Mean time, whatever the number of samples.
    #[inline]
    fn mean(&self) -> Nanos {
        Nanos(self.mean.load(Ordering::Relaxed) >> FRACTION_BITS)
    }

    /// Mean time, from 32 samples on.
    #[inline]
    pub fn time(&self) -> Option<Nanos> {
        let known = self.samples.load(Ordering::Relaxed) >= MIN_SAMPLES;
        known.then(|| self.mean())
    }

    /// Mean time, from 32 samples on; from 4 samples on if it exceeds `bound`.
    #[inline]
    pub fn time_above(&self, bound: Nanos) -> Option<Nanos> {
        let (mean, samples) = (self.mean(), self.samples.load(Ordering::Relaxed));
        let is_known = samples >= MIN_SAMPLES || mean > bound && samples >= MIN_LONG_SAMPLES;
        is_known.then_some(mean)
    }

    /// Mean time as a cost in whole microseconds, at least one; `unknown` before 32 samples.
    #[inline]
    pub fn cost(&self, unknown: Cost) -> Cost {
        self.time().map_or(unknown, |time| Cost(u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX).max(1)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_few_trials_suffice() {
        let estimate = CostEstimate::default();
        (0..100).for_each(|_| estimate.record(Nanos::from_micros(900)));
        (0..16).for_each(|_| estimate.record_trial(Nanos::from_micros(100)));
        assert!(estimate.cost(Cost(7)).0 < 200);
    }

    #[test]
    fn a_few_long_samples_suffice() {
        let (long, short) = (CostEstimate::default(), CostEstimate::default());
        let bound = Nanos::from_millis(20);
        for sample in 1..=4 {
            long.record(Nanos::from_millis(22));
            short.record(Nanos::from_millis(18));
            assert_eq!(long.time_above(bound), (sample == 4).then_some(Nanos::from_millis(22)));
            assert_eq!((short.time_above(bound), long.time()), (None, None));
        }
    }

    #[test]
    fn a_cost_estimate_converges_to_the_mean_and_follows_changes() {
        let estimate = CostEstimate::default();
        for sample in 0..31 {
            estimate.record(Nanos::from_micros(100 + sample % 3));
            assert_eq!(estimate.time(), None);
        }
        estimate.record(Nanos::from_micros(101));
        assert_eq!(estimate.cost(Cost(7)), Cost(100));
        (0..1_000).for_each(|_| estimate.record(Nanos::from_micros(900)));
        assert!(estimate.cost(Cost(7)).0 >= 890);
        estimate.record(Nanos::MAX);
        assert!(estimate.cost(Cost(7)).0 < 1_000, "a clock that leapt");
    }
}
