//! What a load sends, and what came of it.

use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::time::Duration;

/// Length of a [`Tick`].
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Demand of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    /// Requests per second, Poisson.
    Rate(f64),
    /// So many connections, each of which sends the next request when it gets a response.
    Closed(usize),
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// Share among all kinds, in any unit.
    pub(crate) weight: f64,
    pub(crate) path: String,
    /// Header lines, each with its end.
    pub(crate) headers: String,
    /// Index of the group in the result.
    pub(crate) group: usize,
}

impl Kind {
    pub(crate) fn path(path: &str, weight: f64) -> Self {
        Kind { weight, path: path.into(), headers: String::new(), group: 0 }
    }
}

/// Settings of a load.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) phases: Vec<(Demand, Duration)>,
    /// Time from the beginning that is not measured.
    pub(crate) warmup: Duration,
    pub(crate) objective: Duration,
    pub(crate) seed: u64,
    pub(crate) kinds: Vec<Kind>,
    /// Whether latency counts to the first byte of a response, and not to the last.
    pub(crate) to_first_byte: bool,
}

/// Outcomes of a group's requests that were due in the measured time.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) due: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    /// Ended without a response, with an unexpected status, or given up.
    pub(crate) failed: u64,
    /// Of the failed, those whose response had begun.
    pub(crate) cut: u64,
    pub(crate) in_time: u64,
    /// Latency of the answered requests in us.
    pub(crate) latency: Histogram<u64>,
}

impl Default for Group {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("sound bounds");
        Group { due: 0, answered: 0, refused: 0, failed: 0, cut: 0, in_time: 0, latency }
    }
}

impl Group {
    /// A percentile of the latency in ms.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Rejected or failed share.
    pub(crate) fn unserved(&self) -> f64 {
        (self.refused + self.failed) as f64 / self.due.max(1) as f64
    }
}

/// Outcomes of the requests that were due in one tick, warm-up included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tick {
    pub(crate) due: u64,
    pub(crate) in_time: u64,
    pub(crate) unserved: u64,
}

/// Result of a load.
pub(crate) struct LoadResult {
    pub(crate) groups: Vec<Group>,
    /// Measured time.
    pub(crate) span: Duration,
    pub(crate) ticks: Vec<Tick>,
    /// Share of a CPU that the generator took.
    pub(crate) busy: f64,
}

impl LoadResult {
    pub(crate) fn all(&self) -> Group {
        let mut sum = Group::default();
        for group in &self.groups {
            sum.due += group.due;
            sum.answered += group.answered;
            sum.refused += group.refused;
            sum.failed += group.failed;
            sum.cut += group.cut;
            sum.in_time += group.in_time;
            let _ = sum.latency.add(&group.latency);
        }
        sum
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64()
    }
}
