//! A measurement of a setup at a load, and what it says about the tail.

use leeward_control::threading::curves::{Knot, Tail};
use leeward_control::units::{Nanos, Rate};
use leeward_outcome::Percentiles;
use leeward_outcome::RunOutcome;

/// Share of requests that must be answered for a load to be sustained. The rest is still under way at the end.
const SUSTAINED: f64 = 0.98;
/// Standard normal quantile of two-sided 95-% bounds.
const NORMAL: f64 = 1.96;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests that clients issued.
    pub issued: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Latencies of these.
    pub latency: Percentiles,
    /// CPUs that the server's threads kept busy.
    pub cpu: f64,
    /// Whether the clients were late for the load, so that none of it counts as answered.
    pub late: bool,
}

impl Sample {
    /// Of a run of a server with so many CPUs.
    pub fn of(outcome: &RunOutcome, cpus: u32) -> Self {
        Sample {
            issued: outcome.counts.offered,
            completed: outcome.counts.completed,
            latency: outcome.latency,
            cpu: outcome.cpu_utilization * f64::from(cpus),
            late: false,
        }
    }

    /// Whether the setup kept up.
    pub fn is_sustained(&self) -> bool {
        self.completed > 0 && self.completed as f64 >= self.issued as f64 * SUSTAINED
    }

    /// The tail's value.
    pub fn tail(&self, tail: Tail) -> Nanos {
        match tail {
            Tail::P99 => self.latency.p99,
            Tail::P999 => self.latency.p999,
        }
    }

    /// 95-% bounds of the tail: the order statistics around it, of which percentiles tell the neighbourhood only. Between two of them
    /// the tail is taken as log-linear in the share of requests that are slower.
    pub fn bounds(&self, tail: Tail) -> (Nanos, Nanos) {
        let share: f64 = match tail {
            Tail::P99 => 0.01,
            Tail::P999 => 0.001,
        };
        let half = NORMAL * (share * (1.0 - share) / self.latency.count.max(1) as f64).sqrt();
        (self.at_share(share + half), self.at_share(share - half))
    }

    /// Latency that this share of requests exceeds.
    fn at_share(&self, share: f64) -> Nanos {
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

    /// As a knot of a curve. Latencies are at least a nanosecond, and ascend.
    pub fn knot(&self, load: Rate, tail: Tail) -> Knot {
        let us = |span: Nanos| span.0.max(1) as f64 / 1e3;
        let (low, high) = self.bounds(tail);
        let spread = high.0.saturating_sub(low.0) as f64 / 2.0 / self.tail(tail).0.max(1) as f64;
        Knot {
            load: rounded(load.0),
            p50_us: us(self.latency.p50),
            p99_us: us(self.latency.p99.max(self.latency.p50)),
            p999_us: us(self.latency.p999.max(self.latency.p99).max(self.latency.p50)),
            cpu: (self.cpu.clamp(0.0, 1e6) * 1e4).round() / 1e4,
            samples: self.completed.min(u32::MAX.into()),
            spread: (spread * 1e4).round() / 1e4,
        }
    }
}

/// A load with three decimals: nobody offers a rate more exactly.
pub(super) fn rounded(load: f64) -> f64 {
    (load * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64) -> Sample {
        let us = Nanos::from_micros;
        let (p50, p90, p99, p999, max) = (us(100), us(200), us(300), us(400), us(500));
        let latency = Percentiles { count, mean_ns: 1e5, p50, p90, p99, p999, max };
        Sample { issued: count, completed: count, latency, cpu: 1.0, late: false }
    }

    #[test]
    fn bounds_close_in_with_samples() {
        let mut before = Nanos::MAX;
        for count in [500, 2_000, 20_000, 2_000_000] {
            let (low, high) = sample(count).bounds(Tail::P99);
            assert!(low < Nanos::from_micros(300) && high > Nanos::from_micros(300), "{count}: {low} {high}");
            assert!(high - low < before, "{count}");
            before = high - low;
        }
        assert!(before < Nanos::from_micros(3));
    }

    #[test]
    fn a_handful_has_bounds() {
        for count in [0, 1, 5, 99] {
            let (low, high) = sample(count).bounds(Tail::P999);
            assert!(low <= high && high <= Nanos::from_micros(500), "{count}: {low} {high}");
        }
    }

    #[test]
    fn a_backlog_is_not_sustained() {
        assert!(sample(1_000).is_sustained());
        assert!(!Sample { completed: 950, ..sample(1_000) }.is_sustained());
        assert!(!sample(0).is_sustained());
    }
}
