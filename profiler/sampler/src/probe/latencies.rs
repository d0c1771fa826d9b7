//! Latencies of all requests, and the choice of those that are reported.
//!
//! Contains no system call.

use super::report::{BUCKETS, lowest};

/// Latencies of requests, in buckets of at most 6 % width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    buckets: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { buckets: vec![0; BUCKETS] }
    }
}

impl Latencies {
    pub(super) fn new(mut buckets: Vec<u64>) -> Latencies {
        buckets.resize(BUCKETS, 0);
        Latencies { buckets }
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Returns the latency in nanoseconds that this share of the requests does not exceed, to
    /// within 6 %; 0 without requests.
    pub fn percentile(&self, percent: f64) -> u64 {
        let count = self.count();
        let rank = ((percent.clamp(0.0, 100.0) / 100.0 * count as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        let is_reached = |counted: &u64| {
            below = below.saturating_add(*counted);
            below >= rank
        };
        let bucket = self.buckets.iter().position(is_reached);
        bucket.map_or(0, |bucket| lowest(bucket).midpoint(lowest((bucket + 1).min(BUCKETS - 1))))
    }

    /// Returns counts of latencies from least to greatest, each with the middle of its bucket.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let middle = |bucket: usize| lowest(bucket).midpoint(lowest((bucket + 1).min(BUCKETS - 1)));
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(at, count)| (middle(at), *count))
    }

    /// Returns the requests since an earlier state.
    fn since(&self, earlier: &Latencies) -> Vec<u64> {
        self.buckets.iter().zip(&earlier.buckets).map(|(now, before)| now.saturating_sub(*before)).collect()
    }
}

/// Which requests are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// All requests that took as long, in nanoseconds.
    pub(super) threshold: u64,
    /// Of the others one in so many, a power of two.
    pub(super) one_in: u64,
}

/// Adapts the choice so that a steady number of requests is reported, the slowest always.
#[derive(Debug)]
pub(super) struct ChoiceControl {
    seen: Latencies,
    /// Requests of the last seconds: older ones count less.
    recent: Vec<f64>,
    /// Seconds that `recent` stands for.
    weight: f64,
    choice: Choice,
    /// Slow and other requests to report per second.
    per_second: (f64, f64),
}

/// Seconds after which a request counts half.
const HALF_LIFE: f64 = 2.0;

impl ChoiceControl {
    /// Begins; `per_second` requests are to be reported, two thirds of them slow ones.
    pub(super) fn new(per_second: u32) -> ChoiceControl {
        let all = f64::from(per_second.max(3));
        ChoiceControl {
            seen: Latencies::default(),
            recent: vec![0.0; BUCKETS],
            weight: 0.0,
            choice: Choice { threshold: 0, one_in: 1 },
            per_second: (all * 2.0 / 3.0, all / 3.0),
        }
    }

    /// Takes the latencies of all requests until now, `seconds` after the last call.
    pub(super) fn update(&mut self, all: Latencies, seconds: f64) -> Choice {
        let decay = 0.5_f64.powf(seconds / HALF_LIFE);
        let new = all.since(&self.seen);
        self.recent.iter_mut().zip(&new).for_each(|(sum, count)| *sum = *sum * decay + *count as f64);
        self.weight = self.weight * decay + seconds;
        self.seen = all;
        let rate = self.recent.iter().sum::<f64>() / self.weight.max(1e-3);
        let (slow, others) = self.per_second;
        self.choice = if rate <= slow + others {
            Choice { threshold: 0, one_in: 1 }
        } else {
            Choice { threshold: self.threshold(slow), one_in: one_in(rate / others) }
        };
        self.choice
    }

    /// Returns the least latency that no more than `slow` requests a second reach.
    fn threshold(&self, slow: f64) -> u64 {
        let mut above = 0.0;
        for (bucket, count) in self.recent.iter().enumerate().rev() {
            above += count / self.weight;
            if above > slow {
                return lowest((bucket + 1).min(BUCKETS - 1));
            }
        }
        0
    }
}

/// Returns the next power of two.
fn one_in(ratio: f64) -> u64 {
    (ratio.clamp(1.0, 1e9) as u64).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn latencies(of: &[(u64, u64)]) -> Latencies {
        let mut buckets = vec![0; BUCKETS];
        for (latency, count) in of {
            let bucket = (0..BUCKETS).rev().find(|bucket| lowest(*bucket) <= *latency).unwrap();
            buckets[bucket] += count;
        }
        Latencies::new(buckets)
    }

    #[test]
    fn percentiles_are_within_a_bucket() {
        let all = latencies(&[(10_000, 990), (5_000_000, 10)]);
        let near = |percent, expected: f64| (all.percentile(percent) as f64 / expected - 1.0).abs() < 0.07;
        assert_eq!(all.count(), 1000);
        assert!(near(50.0, 1e4) && near(99.0, 1e4) && near(99.5, 5e6) && near(100.0, 5e6));
        assert_eq!(Latencies::default().percentile(50.0), 0);
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 1000);
    }

    #[test]
    fn few_requests_are_all_reported() {
        let mut control = ChoiceControl::new(300);
        assert_eq!(control.update(latencies(&[(1000, 100)]), 1.0), Choice { threshold: 0, one_in: 1 });
    }

    #[test]
    fn of_many_requests_the_slowest_are_reported() {
        let mut control = ChoiceControl::new(300);
        let choice = control.update(latencies(&[(10_000, 100_000), (1_000_000, 100)]), 1.0);
        assert!(choice.threshold > 10_000 && choice.threshold < 1_000_000, "{choice:?}");
        assert_eq!(choice.one_in, 1024);
        // A quieter time lets everything through again, soon.
        let quiet = latencies(&[(10_000, 100_010), (1_000_000, 100)]);
        let choice = (0..20).map(|_| control.update(quiet.clone(), 1.0)).last();
        assert_eq!(choice, Some(Choice { threshold: 0, one_in: 1 }));
    }

    proptest! {
        #[test]
        fn no_more_than_asked_would_have_been_reported(
            requests in prop::collection::vec((0_u64..1 << 40, 1_u64..10_000), 1..40), per_second in 3_u32..1000,
        ) {
            let all = latencies(&requests);
            let choice = ChoiceControl::new(per_second).update(all.clone(), 1.0);
            let slow: u64 = (0..BUCKETS).filter(|at| lowest(*at) >= choice.threshold).map(|at| all.buckets[at]).sum();
            let others = (all.count() - slow) / choice.one_in;
            prop_assert!(slow + others <= u64::from(per_second) + 1, "{choice:?}: {slow} {others}");
            prop_assert!(choice.one_in.is_power_of_two());
        }
    }
}
