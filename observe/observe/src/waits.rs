//! Distribution of waits in a fixed amount of memory, with one writer at a time. Does not contain
//! the kinds of waits.

use leeward_core::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bounds: 10 us × 2^n for n from 0 to 20 (10.5 s). One more bucket counts the longer
/// waits.
pub const BOUNDS: usize = 21;
/// First bound, in nanoseconds.
const FIRST_BOUND: u64 = 10_000;

/// Upper bound of a bucket, inclusive, in nanoseconds.
pub const fn bound(bucket: usize) -> u64 {
    FIRST_BOUND << bucket
}

/// Index of the bucket of a wait.
fn bucket(wait: u64) -> usize {
    // The least n with wait <= FIRST_BOUND << n: bits of the quotient, rounded up.
    let tens = wait.saturating_sub(1) / FIRST_BOUND;
    ((u64::BITS - tens.leading_zeros()) as usize).min(BOUNDS)
}

/// Adds to a counter that only this thread writes: a plain store costs a fifth of an atomic
/// addition.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// Wait histogram. One thread at a time may write, any thread may read.
#[derive(Debug, Default)]
pub struct WaitHistogram {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl WaitHistogram {
    /// Counts a wait. Only one thread at a time may call this.
    #[inline]
    pub fn record(&self, wait: Nanos) {
        // The index is always valid, so no branch is taken on the wait.
        if let Some(counter) = self.buckets.get(bucket(wait.0)) {
            add(counter, 1);
        }
        add(&self.sum_ns, wait.0);
    }

    /// Adds these counts to `sum`.
    pub fn add_to(&self, sum: &mut WaitCounts) {
        for (sum, part) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(part.load(Ordering::Relaxed));
        }
        sum.sum_ns = sum.sum_ns.wrapping_add(self.sum_ns.load(Ordering::Relaxed));
    }
}

/// Counts of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitCounts {
    /// Counts by bucket; the last bucket counts waits above all bounds.
    pub buckets: [u64; BOUNDS + 1],
    /// Sum of all waits, in nanoseconds.
    pub sum_ns: u64,
}

impl WaitCounts {
    /// Number of counted waits.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_at_a_bound_belongs_to_the_lower_bucket() {
        for (wait, index) in [(0, 0), (1, 0), (10_000, 0), (10_001, 1), (20_000, 1), (20_001, 2), (u64::MAX, BOUNDS)] {
            assert_eq!(bucket(wait), index, "{wait}");
        }
        for index in 0..BOUNDS {
            assert_eq!((bucket(bound(index)), bucket(bound(index) + 1)), (index, index + 1));
        }
    }

    proptest! {
        #[test]
        fn a_wait_lies_between_the_bounds_of_its_bucket(wait in any::<u64>()) {
            let index = bucket(wait);
            prop_assert!(index == BOUNDS || wait <= bound(index));
            prop_assert!(index == 0 || wait > bound(index - 1));
        }
    }

    #[test]
    fn counts_are_summed_over_all_writers() {
        let cores = [WaitHistogram::default(), WaitHistogram::default()];
        cores[0].record(Nanos(5_000));
        cores[1].record(Nanos(15_000));
        cores[1].record(Nanos(u64::MAX / 2));
        let mut sum = WaitCounts::default();
        cores.iter().for_each(|core| core.add_to(&mut sum));
        assert_eq!((sum.count(), sum.buckets[0], sum.buckets[1], sum.buckets[BOUNDS]), (3, 1, 1, 1));
    }
}
