//! A measurement of a setup at a load, with bounds of its tail.

use leeward_core::units::{Nanos, Rate};
use leeward_outcome::Percentiles;
use leeward_outcome::RunOutcome;
use leeward_threading::curves::{CurvePoint, TailPercentile};

/// Share of requests that must be answered in a sustained load. The rest is unfinished at the end.
const SUSTAINED: f64 = 0.98;
/// Standard normal quantile of two-sided 95 % bounds.
const Z_95: f64 = 1.96;

/// A measurement of a setup at a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Number of issued requests.
    pub issued: u64,
    /// Number of answered requests.
    pub completed: u64,
    /// Latency of answered requests.
    pub latency: Percentiles,
    /// Mean number of CPUs that the server's threads kept busy.
    pub cpu: f64,
    /// Whether the clients were late for the load; no request then counts as answered.
    pub clients_late: bool,
    /// Relative uncertainty of the tail because of variation of the machine. The order statistics
    /// don't show it, because all requests of a measurement share it.
    pub noise: f64,
}

/// Uncertainty of a single measurement of a real server, before a second one.
pub(super) const UNKNOWN_NOISE: f64 = 0.5;
/// Minimum uncertainty of two measurements, which may agree by chance.
const MIN_NOISE: f64 = 0.1;

impl Measurement {
    /// Creates a measurement from the run of a server with `cpus` CPUs.
    pub fn from_outcome(outcome: &RunOutcome, cpus: u32) -> Self {
        Measurement {
            issued: outcome.counts.offered,
            completed: outcome.counts.completed,
            latency: outcome.latency,
            cpu: outcome.cpu_utilization * f64::from(cpus),
            clients_late: false,
            noise: 0.0,
        }
    }

    /// Merges two measurements of the same setup and load. Percentiles lie between both, weighted
    /// by requests; the noise is estimated from the difference.
    pub(super) fn merge(&self, other: &Measurement, tail: TailPercentile) -> Measurement {
        let (one, two) = (self.latency, other.latency);
        let share = two.count as f64 / (one.count + two.count).max(1) as f64;
        let between = |one: f64, two: f64| (one.max(1.0).ln() * (1.0 - share) + two.max(1.0).ln() * share).exp();
        let at = |one: Nanos, two: Nanos| Nanos(between(one.0 as f64, two.0 as f64).round() as u64);
        let latency = Percentiles {
            count: one.count + two.count,
            mean_ns: between(one.mean_ns, two.mean_ns),
            p50: at(one.p50, two.p50),
            p90: at(one.p90, two.p90),
            p99: at(one.p99, two.p99),
            p999: at(one.p999, two.p999),
            max: one.max.max(two.max),
        };
        let together = Measurement {
            issued: self.issued + other.issued,
            completed: self.completed + other.completed,
            latency,
            cpu: self.cpu * (1.0 - share) + other.cpu * share,
            clients_late: self.clients_late || other.clients_late,
            noise: 0.0,
        };
        let off = |sample: &Measurement| {
            let ratio = (sample.tail(tail).0 as f64 / together.tail(tail).0.max(1) as f64).max(1e-3);
            ratio.max(1.0 / ratio) - 1.0
        };
        // Noise of earlier measurements counts, even if two agree.
        let before = if self.noise == UNKNOWN_NOISE { 0.0 } else { self.noise / 2.0 };
        Measurement { noise: off(self).max(off(other)).max(before).max(MIN_NOISE), ..together }
    }

    /// Whether the setup sustained the load.
    pub fn is_sustained(&self) -> bool {
        self.completed > 0 && self.completed as f64 >= self.issued as f64 * SUSTAINED
    }

    /// Tail latency.
    pub fn tail(&self, tail: TailPercentile) -> Nanos {
        match tail {
            TailPercentile::P99 => self.latency.p99,
            TailPercentile::P999 => self.latency.p999,
        }
    }

    /// 95 % bounds of the tail: the order statistics around it, of which only some percentiles are
    /// known. Between two percentiles the tail is interpolated log-linearly in the share of slower
    /// requests.
    pub fn bounds(&self, tail: TailPercentile) -> (Nanos, Nanos) {
        let share: f64 = match tail {
            TailPercentile::P99 => 0.01,
            TailPercentile::P999 => 0.001,
        };
        let half = Z_95 * (share * (1.0 - share) / self.latency.count.max(1) as f64).sqrt();
        let (low, high) = (self.latency_at(share + half), self.latency_at(share - half));
        let moods = 1.0 + self.noise;
        (Nanos((low.0 as f64 / moods) as u64), Nanos((high.0 as f64 * moods) as u64))
    }

    /// Latency that this share of requests exceeds.
    fn latency_at(&self, share: f64) -> Nanos {
        let Percentiles { count, p50, p90, p99, p999, max, .. } = self.latency;
        let known = [(0.5, p50), (0.1, p90), (0.01, p99), (0.001, p999), (0.1 / count.max(1) as f64, max)];
        for pair in known.windows(2) {
            let ((above, low), (below, high)) = (pair[0], pair[1]);
            if share > below && below < above {
                let part = (above.max(share).ln() - share.ln()) / (above.ln() - below.ln());
                let nanos = low.0 as f64 + (high.0.saturating_sub(low.0)) as f64 * part.clamp(0.0, 1.0);
                return Nanos(nanos as u64);
            }
        }
        max
    }

    /// Converts to a curve point. Latencies are at least a nanosecond, and ascend.
    pub fn curve_point(&self, load: Rate, tail: TailPercentile) -> CurvePoint {
        let us = |span: Nanos| span.0.max(1) as f64 / 1e3;
        let (low, high) = self.bounds(tail);
        let spread = high.0.saturating_sub(low.0) as f64 / 2.0 / self.tail(tail).0.max(1) as f64;
        CurvePoint {
            load: round_load(load.0),
            p50_us: us(self.latency.p50),
            p99_us: us(self.latency.p99.max(self.latency.p50)),
            p999_us: us(self.latency.p999.max(self.latency.p99).max(self.latency.p50)),
            cpu: (self.cpu.clamp(0.0, 1e6) * 1e4).round() / 1e4,
            samples: self.completed.min(u32::MAX.into()),
            spread: (spread * 1e4).round() / 1e4,
        }
    }
}

/// Rounds a load to three decimals: no client offers a rate more exactly.
pub(super) fn round_load(load: f64) -> f64 {
    (load * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64) -> Measurement {
        let us = Nanos::from_micros;
        let (p50, p90, p99, p999, max) = (us(100), us(200), us(300), us(400), us(500));
        let latency = Percentiles { count, mean_ns: 1e5, p50, p90, p99, p999, max };
        Measurement { issued: count, completed: count, latency, cpu: 1.0, clients_late: false, noise: 0.0 }
    }

    #[test]
    fn the_bounds_narrow_with_more_samples() {
        let mut before = Nanos::MAX;
        for count in [500, 2_000, 20_000, 2_000_000] {
            let (low, high) = sample(count).bounds(TailPercentile::P99);
            assert!(low < Nanos::from_micros(300) && high > Nanos::from_micros(300), "{count}: {low} {high}");
            assert!(high - low < before, "{count}");
            before = high - low;
        }
        assert!(before < Nanos::from_micros(3));
    }

    #[test]
    fn a_few_samples_have_bounds() {
        for count in [0, 1, 5, 99] {
            let (low, high) = sample(count).bounds(TailPercentile::P999);
            assert!(low <= high && high <= Nanos::from_micros(500), "{count}: {low} {high}");
        }
    }

    #[test]
    fn measurements_that_differ_widen_the_bounds() {
        let slower = |factor: u64| {
            let Measurement { latency, .. } = sample(2_000);
            let times = |span: Nanos| Nanos(span.0 * factor);
            let Percentiles { p50, p90, p99, p999, max, .. } = latency;
            let (p50, p90, p99, p999, max) = (times(p50), times(p90), times(p99), times(p999), times(max));
            Measurement {
                latency: Percentiles { p50, p90, p99, p999, max, ..latency },
                noise: UNKNOWN_NOISE,
                ..sample(2_000)
            }
        };
        let (alike, apart) =
            (slower(1).merge(&slower(1), TailPercentile::P99), slower(1).merge(&slower(4), TailPercentile::P99));
        assert_eq!((alike.noise, alike.latency.count, alike.latency.p99), (MIN_NOISE, 4_000, Nanos::from_micros(300)));
        assert!((apart.noise - 1.0).abs() < 0.01 && apart.latency.p99.0.abs_diff(600_000) < 10, "{apart:?}");
        let width = |sample: &Measurement| {
            sample.bounds(TailPercentile::P99).1.0 as f64 / sample.bounds(TailPercentile::P99).0.0 as f64
        };
        assert!(width(&apart) > 3.0 * width(&alike) && width(&slower(1)) > 1.5 * width(&alike));
        assert!(apart.merge(&apart, TailPercentile::P99).noise >= 0.49, "what was seen is not forgotten at once");
    }

    #[test]
    fn a_backlog_is_not_sustained() {
        assert!(sample(1_000).is_sustained());
        assert!(!Measurement { completed: 950, ..sample(1_000) }.is_sustained());
        assert!(!sample(0).is_sustained());
    }
}
