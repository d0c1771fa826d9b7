//! Distribution of latencies, fine enough for percentiles, in a fixed amount of memory. One thread
//! at a time writes. Does not contain the definition of a latency's start and end.

use crate::waits::{BOUNDS, WaitCounts, add, bound};
use leeward_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per doubling. One bucket of waits ([`crate::bound`]) covers this many of them.
const SUB_BUCKETS: usize = 16;
/// First bound, in nanoseconds.
const FIRST_BOUND: u64 = bound(0) / SUB_BUCKETS as u64;
/// Number of buckets with a bound; one more bucket counts the latencies above all bounds (10.5 s).
const BUCKETS: usize = BOUNDS * SUB_BUCKETS;

/// Index of the bucket of a latency.
#[inline]
fn bucket(latency: u64) -> usize {
    let steps = latency.saturating_sub(1) / FIRST_BOUND;
    // Buckets are linear below the first bound of waits, then equal parts of each doubling.
    let doublings = (u64::BITS - 1).saturating_sub(steps.leading_zeros()).saturating_sub(SUB_BUCKETS.ilog2());
    let within = (steps >> doublings) as usize;
    (doublings as usize * SUB_BUCKETS + within).min(BUCKETS)
}

/// Upper bound of a bucket that has one, inclusive, in nanoseconds.
fn upper_bound(bucket: usize) -> u64 {
    let doublings = (bucket / SUB_BUCKETS).saturating_sub(1);
    (((bucket - doublings * SUB_BUCKETS + 1) as u64) << doublings) * FIRST_BOUND
}

/// Latency histogram. One thread at a time may write, any thread may read.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram { buckets: [const { AtomicU64::new(0) }; BUCKETS + 1], sum_ns: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    /// Counts a latency. Only one thread at a time may call this.
    #[inline]
    pub fn record(&self, latency: Nanos) {
        if let Some(counter) = self.buckets.get(bucket(latency.0)) {
            add(counter, 1);
        }
        add(&self.sum_ns, latency.0);
    }

    /// Adds these counts to `sum`.
    pub fn add_to(&self, sum: &mut LatencyCounts) {
        sum.buckets.resize(BUCKETS + 1, 0);
        for (sum, part) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(part.load(Ordering::Relaxed));
        }
        sum.sum_ns = sum.sum_ns.wrapping_add(self.sum_ns.load(Ordering::Relaxed));
    }
}

/// Counts of latencies. As JSON: the count, the percentiles, the sum, and the buckets that are not
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LatencyJson", into = "LatencyJson")]
pub struct LatencyCounts {
    /// Counts by bucket; empty until a latency is counted.
    buckets: Vec<u64>,
    /// Sum of all latencies, in nanoseconds.
    pub sum_ns: u64,
}

/// Latency percentiles of the counted results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Number of counted latencies.
    pub count: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds; the longest latency if fewer than 1,000 were counted.
    pub p999_ns: u64,
}

impl LatencyCounts {
    /// Number of counted latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Latencies that were counted after `earlier`.
    pub fn since(&self, earlier: &LatencyCounts) -> LatencyCounts {
        let before = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        LatencyCounts {
            buckets: self.buckets.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }

    /// Percentiles; `None` until a latency is counted.
    ///
    /// Interpolated within a bucket, so at most 6 % wrong from 10 us on.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let count = self.count();
        let of = |share| self.quantile(count, share);
        (count > 0).then(|| Percentiles { count, p50_ns: of(0.5), p99_ns: of(0.99), p999_ns: of(0.999) })
    }

    fn quantile(&self, count: u64, share: f64) -> u64 {
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut before = 0_u64;
        for (bucket, count) in self.buckets.iter().enumerate().take(BUCKETS) {
            if before.saturating_add(*count) >= rank {
                let lower = bucket.checked_sub(1).map_or(0, upper_bound);
                let part = (rank - before) as f64 / *count as f64;
                return lower + ((upper_bound(bucket) - lower) as f64 * part) as u64;
            }
            before = before.saturating_add(*count);
        }
        bound(BOUNDS - 1)
    }

    /// The same latencies in the coarser buckets of waits.
    pub(crate) fn to_wait_counts(&self) -> WaitCounts {
        let mut coarse = WaitCounts { sum_ns: self.sum_ns, ..WaitCounts::default() };
        for (sum, parts) in coarse.buckets.iter_mut().zip(self.buckets.chunks(SUB_BUCKETS)) {
            *sum = parts.iter().fold(0, |sum, count| sum.saturating_add(*count));
        }
        coarse
    }
}

/// JSON form of the counts.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct LatencyJson {
    count: u64,
    #[serde(skip_deserializing)]
    p50_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p99_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p999_ns: Option<u64>,
    sum_ns: u64,
    /// Upper bounds in nanoseconds with counts; `None` is the bucket above all bounds.
    buckets: Vec<(Option<u64>, u64)>,
}

impl From<LatencyJson> for LatencyCounts {
    /// Accepts the buckets of other versions: each count goes to the bucket that contains its
    /// bound.
    fn from(json: LatencyJson) -> Self {
        let mut counts = LatencyCounts { buckets: Vec::new(), sum_ns: json.sum_ns };
        for (bound, count) in json.buckets {
            counts.buckets.resize(BUCKETS + 1, 0);
            let sum = &mut counts.buckets[bound.map_or(BUCKETS, bucket)];
            *sum = sum.saturating_add(count);
        }
        counts
    }
}

impl From<LatencyCounts> for LatencyJson {
    fn from(counts: LatencyCounts) -> Self {
        let percentiles = counts.percentiles();
        let of = |part: fn(&Percentiles) -> u64| percentiles.as_ref().map(part);
        let filled = counts.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        LatencyJson {
            count: counts.count(),
            p50_ns: of(|all| all.p50_ns),
            p99_ns: of(|all| all.p99_ns),
            p999_ns: of(|all| all.p999_ns),
            sum_ns: counts.sum_ns,
            buckets: filled.map(|(bucket, count)| ((bucket < BUCKETS).then(|| upper_bound(bucket)), *count)).collect(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(latencies: impl IntoIterator<Item = u64>) -> LatencyCounts {
        let (counter, mut counts) = (LatencyHistogram::default(), LatencyCounts::default());
        latencies.into_iter().for_each(|latency| counter.record(Nanos(latency)));
        counter.add_to(&mut counts);
        counts
    }

    #[test]
    fn a_value_at_a_bound_belongs_to_the_lower_bucket() {
        for index in 0..BUCKETS {
            assert_eq!((bucket(upper_bound(index)), bucket(upper_bound(index) + 1)), (index, index + 1));
        }
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 0, BUCKETS));
        (0..BOUNDS).for_each(|index| assert_eq!(upper_bound(index * SUB_BUCKETS + SUB_BUCKETS - 1), bound(index)));
    }

    #[test]
    fn percentiles_cover_only_records_since_the_earlier_snapshot() {
        assert_eq!(LatencyCounts::default().percentiles(), None);
        let quick: Vec<u64> = (1..=1_000).map(|latency| latency * 1_000).collect();
        let slow = quick.iter().map(|latency| latency * 20);
        let (before, now) = (counts(quick.clone()), counts(quick.iter().copied().chain(slow)));
        let near = |found: u64, right: u64| found.abs_diff(right) * 16 <= right;
        let of = before.percentiles().unwrap();
        assert!(of.count == 1_000 && near(of.p50_ns, 500_000) && near(of.p99_ns, 990_000), "{of:?}");
        let of = now.since(&before).percentiles().unwrap();
        assert!(of.count == 1_000 && near(of.p50_ns, 10_000_000) && near(of.p999_ns, 19_980_000), "{of:?}");
        assert_eq!(before.since(&before).percentiles(), None);
        assert_eq!(counts([u64::MAX / 2]).percentiles().unwrap().p50_ns, bound(BOUNDS - 1));
    }

    #[test]
    fn json_omits_empty_buckets_and_round_trips() {
        let of = counts([5_000, 5_000, 300_000, u64::MAX / 2]);
        let text = serde_json::to_string(&of).unwrap();
        assert!(text.starts_with("{\"count\":4,\"p50_ns\":5000,") && text.ends_with("[null,1]]}"), "{text}");
        assert_eq!(serde_json::from_str::<LatencyCounts>(&text).unwrap(), of);
        let none = serde_json::to_string(&LatencyCounts::default()).unwrap();
        assert_eq!(serde_json::from_str::<LatencyCounts>(&none).unwrap(), LatencyCounts::default());
        let overflowing = r#"{"buckets": [[0, 18446744073709551615], [1, 7], [18446744073709551615, 1]], "moons": 3}"#;
        assert_eq!(serde_json::from_str::<LatencyCounts>(overflowing).unwrap().count(), u64::MAX);
    }

    proptest! {
        #[test]
        fn latency_buckets_nest_within_wait_buckets(latency in any::<u64>(), shift in 0..64_u32) {
            let latency = latency >> shift;
            let index = bucket(latency);
            prop_assert!(index == BUCKETS || latency <= upper_bound(index));
            prop_assert!(index == 0 || latency > upper_bound(index - 1));
            let mut waits = WaitCounts::default();
            let counted = crate::waits::WaitHistogram::default();
            counted.record(Nanos(latency));
            counted.add_to(&mut waits);
            prop_assert_eq!(counts([latency]).to_wait_counts(), waits);
        }
    }
}
