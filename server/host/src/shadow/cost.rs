//! Estimates the time for which requests occupy a core, including reading and answering, while all
//! requests run. Does not contain the shadow queue that follows from these times.

use leeward_core::server::Signals;
use leeward_core::units::{Method, Nanos, Time};
use leeward_observe::Watch;

/// Minimum time between two samples.
const SAMPLE_PERIOD: Nanos = Nanos::from_millis(10);
/// Minimum requests between two samples.
const MIN_REQUESTS: u64 = 16;
/// Weight of a sample.
const WEIGHT: f64 = 1.0 / 16.0;

/// Estimate of the core time of requests.
#[derive(Debug, Default)]
pub(super) struct CostEstimator {
    last_sample: Option<CostSample>,
    /// Requests executed since the last sample.
    executed: u64,
    /// Mean time of a request; below, the part outside its handler.
    mean_ns: Option<f64>,
    overhead_ns: f64,
}

/// State at the last sample.
#[derive(Clone, Copy, Debug)]
struct CostSample {
    at: Time,
    idle: Nanos,
    /// Requests with a known handler time; below, the sum of these times.
    handled: u64,
    handled_ns: u64,
}

impl CostEstimator {
    /// Takes a sample if one is due. `idle` is the idle time of all cores so far.
    pub(super) fn sample(&mut self, signals: &Signals, idle: Option<Nanos>, cores: usize, watch: Option<&Watch>) {
        self.executed += signals.completions;
        let due = self
            .last_sample
            .is_none_or(|sample| signals.now.since(sample.at) >= SAMPLE_PERIOD && self.executed >= MIN_REQUESTS);
        let Some(idle) = idle.filter(|_| due) else { return };
        let routes = watch.map(Watch::route_counts).unwrap_or_default();
        let sums = routes.iter().fold((0, 0), |(count, sum): (u64, u64), (_, counts)| {
            (count.wrapping_add(counts.costs.count()), sum.wrapping_add(counts.costs.sum_ns))
        });
        let sample = CostSample { at: signals.now, idle, handled: sums.0, handled_ns: sums.1 };
        if let Some(before) = self.last_sample.replace(sample) {
            let span = sample.at.since(before.at).0.saturating_mul(cores as u64);
            let busy = span.saturating_sub(idle.0.saturating_sub(before.idle.0));
            let mean = busy as f64 / self.executed as f64;
            let (handled, count) =
                (sample.handled_ns.wrapping_sub(before.handled_ns), sample.handled.wrapping_sub(before.handled));
            let handler = handled as f64 / count.max(1) as f64;
            self.note(mean, handler.min(mean));
        }
        self.executed = 0;
    }

    fn note(&mut self, mean: f64, handler: f64) {
        let Some(known) = self.mean_ns else {
            (self.mean_ns, self.overhead_ns) = (Some(mean), mean - handler);
            return;
        };
        self.mean_ns = Some(known + WEIGHT * (mean - known));
        self.overhead_ns += WEIGHT * (mean - handler - self.overhead_ns);
    }

    /// Estimated time for which a request of this method occupies a core. Zero before the first
    /// sample.
    pub(super) fn time(&self, core: usize, method: Method, watch: Option<&Watch>) -> Nanos {
        let handler = watch.map_or(Nanos::ZERO, |watch| watch.mean_cost(core, method));
        let mean = self.mean_ns.unwrap_or(0.0);
        let overhead = Nanos(self.overhead_ns as u64);
        if handler > Nanos::ZERO { overhead + handler } else { Nanos(mean as u64) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_observe::Answer;

    #[test]
    fn a_requests_cost_includes_its_share_of_overhead() {
        let watch = Watch::new(2, 16);
        let mut work = CostEstimator::default();
        assert_eq!(work.time(0, Method(1), Some(&watch)), Nanos::ZERO);
        for look in 0..200 {
            // Two cores, half idle, run a hundred requests of 100 us each. The handlers of two
            // methods take 10 and 70 us of it.
            for (method, span) in [(1, 10_000), (2, 70_000)] {
                watch.record_answer(0, Method(method), Answer::InTime);
                (0..50).for_each(|_| watch.record_cost(0, Method(method), Nanos(span)));
            }
            let now = Time(look * 10_000_000);
            let signals = Signals { completions: 100, ..Signals::idle(now) };
            work.sample(&signals, Some(Nanos(now.0)), 2, Some(&watch));
        }
        let times = [1, 2, 3].map(|method| work.time(0, Method(method), Some(&watch)).0 / 1_000);
        // The mean of both is 40 us, so 60 us are overhead. Nothing is known of the third method.
        assert_eq!(times, [70, 130, 100]);
        assert_eq!(work.time(0, Method(1), None), Nanos(100_000));
    }
}
