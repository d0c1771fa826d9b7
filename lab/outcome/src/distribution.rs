//! Distributions of times: a histogram for recording, percentiles for reporting.

use hdrhistogram::Histogram;
use leeward_core::units::Nanos;
use serde::{Serialize, Serializer};

/// Longest recorded time, one hour; longer times count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A distribution of times: a histogram with three digits, and an exact mean.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: u128,
}

impl Distribution {
    /// Creates an empty distribution.
    #[expect(clippy::new_without_default, reason = "allocates a histogram: nothing to make by the way")]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Distribution { histogram, sum: 0 }
    }

    /// Adds a sample.
    pub fn record(&mut self, span: Nanos) {
        self.histogram.saturating_record(span.0);
        self.sum += u128::from(span.0);
    }

    /// Adds all samples of another distribution.
    pub fn add(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.sum += other.sum;
    }

    /// Returns the percentiles and clears the distribution.
    pub fn take(&mut self) -> Percentiles {
        let percentiles = self.percentiles();
        self.clear();
        percentiles
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.sum = 0;
    }

    /// Percentiles of the recorded samples; all zero without samples.
    pub fn percentiles(&self) -> Percentiles {
        let count = self.histogram.len();
        if count == 0 {
            return Percentiles::default();
        }
        let at = |quantile| Nanos(self.histogram.value_at_quantile(quantile));
        Percentiles {
            count,
            mean_ns: self.sum as f64 / count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Nanos(self.histogram.max()),
        }
    }

    /// Non-empty buckets, each with a time in it, ns, and its number of samples. With
    /// [`Distribution::sum_ns`] they hold the whole distribution.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
    }

    /// Sum of all samples, ns.
    pub fn sum_ns(&self) -> u128 {
        self.sum
    }

    /// Creates a distribution from buckets and a sum, ns.
    pub fn from_buckets(buckets: impl IntoIterator<Item = (u64, u64)>, sum_ns: u128) -> Self {
        let mut distribution = Distribution::new();
        buckets.into_iter().for_each(|(value, count)| distribution.histogram.saturating_record_n(value, count));
        Distribution { sum: sum_ns, ..distribution }
    }

    /// The histogram, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

/// Percentiles of a distribution, with the histogram's resolution of three digits; all zero without
/// samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of samples.
    pub count: u64,
    /// Exact mean, ns, not the histogram's.
    pub mean_ns: f64,
    /// Median.
    #[serde(rename = "p50_ns", serialize_with = "nanos")]
    pub p50: Nanos,
    /// 90th percentile.
    #[serde(rename = "p90_ns", serialize_with = "nanos")]
    pub p90: Nanos,
    /// 99th percentile.
    #[serde(rename = "p99_ns", serialize_with = "nanos")]
    pub p99: Nanos,
    /// 99.9th percentile.
    #[serde(rename = "p999_ns", serialize_with = "nanos")]
    pub p999: Nanos,
    /// Maximum.
    #[serde(rename = "max_ns", serialize_with = "nanos")]
    pub max: Nanos,
}

/// Serializes a time as its number of nanoseconds.
fn nanos<S: Serializer>(span: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_three_digits_and_the_mean_is_exact() {
        let mut distribution = Distribution::new();
        (1..=1_000).for_each(|us| distribution.record(Nanos::from_micros(us)));
        let percentiles = distribution.percentiles();
        let near = |span: Nanos, us: u64| span.0.abs_diff(us * 1_000) <= us;
        assert!(
            near(percentiles.p50, 500)
                && near(percentiles.p90, 900)
                && near(percentiles.p99, 990)
                && near(percentiles.max, 1_000),
            "{percentiles:?}"
        );
        assert_eq!((percentiles.count, percentiles.mean_ns), (1_000, 500_500.0));
        assert_eq!(distribution.take(), percentiles);
        assert_eq!(distribution.percentiles(), Percentiles::default());
    }

    #[test]
    fn distributions_add_up_and_saturate_at_an_hour() {
        let (mut one, mut other) = (Distribution::new(), Distribution::new());
        one.record(Nanos(10));
        other.record(Nanos(30));
        one.add(&other);
        assert_eq!((one.percentiles().count, one.percentiles().mean_ns), (2, 20.0));
        one.record(Nanos(u64::MAX));
        assert!(one.percentiles().max.0 >= LONGEST_NS);
    }

    #[test]
    fn a_distribution_is_restored_from_its_buckets() {
        let mut one = Distribution::new();
        (0..5_000u64).for_each(|step| one.record(Nanos(step * step * 7 + 1)));
        let again = Distribution::from_buckets(one.buckets(), one.sum_ns());
        assert_eq!(again.histogram(), one.histogram());
        assert_eq!(again.percentiles(), one.percentiles());
    }

    #[test]
    fn spans_are_written_as_nanoseconds() {
        let percentiles = Percentiles { count: 1, mean_ns: 2.0, p99: Nanos(7), ..Percentiles::default() };
        let text = serde_json::to_string(&percentiles).unwrap();
        assert_eq!(text, r#"{"count":1,"mean_ns":2.0,"p50_ns":0,"p90_ns":0,"p99_ns":7,"p999_ns":0,"max_ns":0}"#);
    }
}
