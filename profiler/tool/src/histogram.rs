//! A histogram of durations with buckets of at most 3 % width.
//!
//! It stores only the buckets between its least and its greatest value: few for similar values, and
//! never more than 8 KB.

/// Buckets per doubling.
const PER_OCTAVE: usize = 32;
/// Buckets per allocation step.
const GROWTH: usize = 16;

/// Counts values, and computes percentiles to within 1.6 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Counts of the buckets from `lowest` on. They saturate at `u32::MAX`: 32 bits halve the
    /// memory.
    counts: Box<[u32]>,
    lowest: u32,
    count: u64,
    /// Saturates at `u64::MAX`.
    total: u64,
    max: u64,
    /// `u64::MAX` for an empty histogram.
    min: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::default(), lowest: 0, count: 0, total: 0, max: 0, min: u64::MAX }
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[inline(always)]
fn bucket(value: u64) -> usize {
    // The first two octaves have a bucket for each value. For smaller values the added bit makes
    // the shift 0.
    let shift = (value | PER_OCTAVE as u64).ilog2() - PER_OCTAVE.ilog2();
    shift as usize * PER_OCTAVE + (value >> shift) as usize
}

/// Returns the least value of a bucket.
fn lowest(bucket: usize) -> u64 {
    let shift = shift(bucket);
    ((bucket - shift * PER_OCTAVE) as u64) << shift
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    lowest(bucket) + ((1 << shift(bucket)) >> 1)
}

/// Returns the number of low bits that a bucket ignores.
fn shift(bucket: usize) -> usize {
    (bucket / PER_OCTAVE).saturating_sub(1)
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value several times.
    #[inline]
    pub fn record_many(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count += times;
        self.total = self.total.saturating_add(value.saturating_mul(times));
        self.count_in(bucket(value), narrow(times));
    }

    #[inline(always)]
    fn count_in(&mut self, bucket: usize, times: u32) {
        match self.counts.get_mut(bucket.wrapping_sub(self.lowest as usize)) {
            Some(count) => *count = count.saturating_add(times),
            None => self.widen(bucket, times),
        }
    }

    /// Counts in a bucket outside the stored range.
    #[cold]
    fn widen(&mut self, bucket: usize, times: u32) {
        let (from, to) = (bucket / GROWTH * GROWTH, bucket / GROWTH * GROWTH + GROWTH);
        let lowest = self.lowest as usize;
        let (from, to) = match self.counts.len() {
            0 => (from, to),
            length => (from.min(lowest), to.max(lowest + length)),
        };
        let mut wider = vec![0; to - from];
        let before = lowest.saturating_sub(from);
        wider[before..before + self.counts.len()].copy_from_slice(&self.counts);
        wider[bucket - from] = times;
        (self.counts, self.lowest) = (wider.into(), from as u32);
    }

    /// Adds the values of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        other.for_each(|bucket, count| self.count_in(bucket, narrow(count)));
    }

    /// Visits the nonempty buckets, from the least to the greatest.
    fn for_each(&self, mut visit: impl FnMut(usize, u64)) {
        let counted = (self.lowest as usize..).zip(&self.counts).filter(|(_, count)| **count > 0);
        counted.for_each(|(bucket, count)| visit(bucket, u64::from(*count)));
    }

    /// Returns the percentile `percent`, from 0 to 100; 0 for an empty histogram.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let (mut below, mut found) = (0, self.max);
        self.for_each(|bucket, count| {
            if below < rank && below + count >= rank {
                found = middle(bucket).clamp(self.min, self.max);
            }
            below += count;
        });
        if rank >= self.count { self.max } else { found }
    }

    /// Returns the threshold at or above which about `share` of all values lie, from 0 to 1; at
    /// least one value.
    ///
    /// Equal values stay together, so the share may be greater or smaller: the nearer ratio is
    /// chosen.
    pub fn top_threshold(&self, share: f64) -> u64 {
        let expected = (self.count as f64 * share.clamp(0.0, 1.0)).max(1.0);
        let mut buckets = Vec::new();
        self.for_each(|bucket, count| buckets.push((bucket, count)));
        let (mut above, mut best) = (0, (f64::INFINITY, 0));
        for (bucket, count) in buckets.into_iter().rev() {
            above += count;
            let error = (above as f64 / expected).ln().abs();
            if error < best.0 {
                best = (error, lowest(bucket));
            }
        }
        best.1
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the greatest value; 0 for an empty histogram.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean; 0 for an empty histogram.
    pub fn mean(&self) -> u64 {
        self.total / self.count.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_approximately_right(mut values in prop::collection::vec(prop_oneof![0_u64..200, any::<u64>(), 1_000_u64..1_000_000], 1..300)) {
            let mut halves = [Histogram::default(), Histogram::default()];
            values.iter().enumerate().for_each(|(index, value)| halves[index % 2].record(*value));
            let [mut all, other] = halves;
            all.add(&other);
            // Separate counts that are added equal a common count, in any order.
            let mut together = Histogram::default();
            values.iter().rev().for_each(|value| together.record(*value));
            prop_assert_eq!(&all, &together);
            prop_assert!(all.counts.len() * 4 < 8_000);
            values.sort_unstable();
            for percent in [0.0, 1.0, 50.0, 99.0, 99.99, 100.0] {
                let rank = (percent / 100.0 * values.len() as f64).ceil().max(1.0) as usize;
                let exact = values[rank - 1] as f64;
                let found = all.percentile(percent) as f64;
                prop_assert!((found - exact).abs() <= exact * 0.033 + 1.0, "p{percent}: {found} for {exact}");
            }
            prop_assert_eq!(all.count(), values.len() as u64);
            prop_assert_eq!(all.max(), values[values.len() - 1]);
        }
    }

    #[test]
    fn the_top_threshold_does_not_split_equal_values() {
        let limit = |values: &[(u64, u64)]| {
            let mut all = Histogram::default();
            values.iter().for_each(|(value, times)| all.record_many(*value, *times));
            all.top_threshold(0.01)
        };
        // Six of a thousand are nearer to ten than the three hundred that share the next value.
        assert!((10_001..=500_000).contains(&limit(&[(9_000, 694), (10_000, 300), (500_000, 6)])));
        // All values are equal: all of them are above the threshold.
        assert!(limit(&[(5_000, 1000)]) <= 5_000);
        assert_eq!(limit(&[]), 0);
        assert_eq!(limit(&[(1, 990), (60, 10)]), 60);
    }
}
