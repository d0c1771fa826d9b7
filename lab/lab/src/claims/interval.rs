//! Confidence interval of a median, by the bootstrap over the seeds. Does not contain the verdicts
//! (`judge`).

use crate::numbers::median;

/// Number of resamples; with more, the interval's ends move by less than the seeds' own spread.
const RESAMPLES: usize = 2_000;
/// Share of the resamples left out at each end: 95 % remain.
const TAIL: f64 = 0.025;

/// The 95 % interval of the median of `values`, by the percentile bootstrap; a single value is its
/// own interval.
///
/// Infinite values count as above, or below, all others. The same values give the same interval.
pub(crate) fn bootstrap(values: &[f64]) -> (f64, f64) {
    let mut random = SplitMix(values.len() as u64);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.iter_mut().for_each(|slot| *slot = values[random.below(values.len())]);
            median_with_infinities(&mut resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let last = RESAMPLES - 1;
    let low = (TAIL * last as f64).floor() as usize;
    (medians[low], medians[last - low])
}

/// The median, also of infinite values: the middle of a number and infinity is infinity.
pub(crate) fn median_with_infinities(values: &mut [f64]) -> f64 {
    let value = median(values);
    if value.is_nan() { 0.0 } else { value } // minus and plus infinity cancel
}

/// SplitMix64 (Steele et al., OOPSLA'14): sufficient for drawing seeds, and the same on every
/// machine.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(bits ^ (bits >> 31)) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_its_own_interval() {
        assert_eq!(bootstrap(&[1.5]), (1.5, 1.5));
    }

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_seeds() {
        let spread = |count: u32| (0..count).map(|step| f64::from(step * 7 % 10)).collect::<Vec<_>>();
        let (few, many) = (bootstrap(&spread(10)), bootstrap(&spread(1_000)));
        for (low, high) in [few, many] {
            assert!(low <= 4.5 && 4.5 <= high, "{low} {high}");
        }
        assert!(many.1 - many.0 < few.1 - few.0, "{few:?} {many:?}");
        assert_eq!(few, bootstrap(&spread(10)));
    }

    /// A 95 % interval should miss in about 5 % of the cases; the percentile bootstrap of a median
    /// of ten misses somewhat more or less often.
    #[test]
    fn the_interval_covers_the_true_median_at_its_nominal_rate() {
        let mut random = SplitMix(99);
        let misses = (0..400)
            .filter(|_| {
                let values: Vec<f64> = (0..10).map(|_| random.below(1_000_001) as f64 / 1e6).collect();
                let (low, high) = bootstrap(&values);
                !(low..=high).contains(&0.5)
            })
            .count();
        assert!((2..=48).contains(&misses), "{misses} of 400");
    }

    #[test]
    fn infinite_values_are_included_in_the_interval() {
        assert_eq!(bootstrap(&[f64::INFINITY; 10]), (f64::INFINITY, f64::INFINITY));
        let mut most = vec![f64::INFINITY; 9];
        most.push(3.0);
        let (low, high) = bootstrap(&most);
        assert!(low > 3.0 && high == f64::INFINITY, "{low} {high}");
    }
}
