//! Estimates of how long a class of requests occupies a core. Never here: how a plant measures that.

use leeward_core::sync::{AtomicU64, Ordering};
use leeward_core::units::{Cost, Nanos};

/// Samples that make an estimate; before that a class costs what an ordinary request does.
const MIN_SAMPLES: u64 = 32;
/// Weight of a sample, and of the newest of the first few: 1 / (samples so far).
const WEIGHT_SAMPLES: u64 = 64;
const WEIGHT: f64 = 1.0 / WEIGHT_SAMPLES as f64;

/// Estimated time of one class of requests on a core. Threads share it: an update that loses a race is one sample fewer.
#[derive(Debug, Default)]
pub struct CostEstimate {
    mean_ns: AtomicU64,
    samples: AtomicU64,
}

impl CostEstimate {
    /// Takes a measured time into account. A time that is not finite or negative cannot be given: spans are whole.
    pub fn record(&self, took: Nanos) {
        // A clock that leapt is no cost.
        if took > Nanos::from_secs(60) {
            return;
        }
        let samples = self.samples.load(Ordering::Relaxed);
        let mean = f64::from_bits(self.mean_ns.load(Ordering::Relaxed));
        let weight = if samples < WEIGHT_SAMPLES {
            self.samples.store(samples + 1, Ordering::Relaxed);
            1.0 / (samples + 1) as f64
        } else {
            WEIGHT
        };
        self.mean_ns.store((mean + weight * (took.0 as f64 - mean)).to_bits(), Ordering::Relaxed);
    }

    /// The mean, from 32 samples on.
    pub fn time(&self) -> Option<Nanos> {
        let known = self.samples.load(Ordering::Relaxed) >= MIN_SAMPLES;
        known.then(|| Nanos(f64::from_bits(self.mean_ns.load(Ordering::Relaxed)) as u64))
    }

    /// The mean as a cost in whole microseconds, at least one; `unknown` before 32 samples.
    pub fn cost(&self, unknown: Cost) -> Cost {
        self.time().map_or(unknown, |time| Cost(u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX).max(1)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_the_mean_and_follows_a_change() {
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
