//! Effects of a shift of demand on a controller: recovery time of goodput, and the worst values
//! before it.

use crate::numbers::{median, rate, round};
use crate::plan::PlannedRun;
use leeward_outcome::results::ShiftRow;
use leeward_outcome::{FineWindow, RunOutcome};

/// Fine windows of 1 ms in the 20 ms for which the paper measures goodput (Breakwater §5.2).
const WINDOWS_PER_SPAN: usize = 20;
/// Share of the settled goodput from which goodput counts as recovered.
const RECOVERY_SHARE: f64 = 0.95;
/// Share of the settled goodput below which goodput counts as a collapse, not noise.
const COLLAPSE_SHARE: f64 = 0.8;
/// Minimum distance of a collapse from the settled goodput, in standard deviations of a count;
/// prevents false collapses at low rates.
const NOISE_DEVIATIONS: f64 = 4.0;

/// Rows of the shifts, one per change of demand.
pub(crate) fn shifts(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Vec<ShiftRow> {
    let segments = &run.config.workload.demand;
    let ends = segments.iter().skip(2).map(|segment| segment.from).chain([run.config.duration]);
    let changes = segments.windows(2).zip(ends);
    changes
        .map(|(pair, end)| {
            let at = pair[1].from;
            let within = |start: u64| start >= at.0 && start < end.0;
            let fine: Vec<FineWindow> =
                outcome.fine_windows.iter().filter(|window| within(window.start.0)).copied().collect();
            let goodput = GoodputSeries::new(&fine);
            let recovery = goodput.recovery();
            let coarse = outcome.windows.iter().map(|window| &window.clients).filter(|window| within(window.start.0));
            let peak = |peak: f64, value: f64| peak.max(value);
            ShiftRow {
                run: run.run_key(),
                at_s: at.as_secs_f64(),
                from_rps: rate(pair[0].rate.0),
                to_rps: rate(pair[1].rate.0),
                settled_goodput_rps: rate(goodput.settled_rate * 1e3),
                recovery_ms: recovery.unwrap_or(fine.len()) as f64,
                recovered: recovery.is_some(),
                reached_ms: goodput.time_to_settled().unwrap_or(fine.len()) as f64,
                goodput_dip_ratio: round(goodput.dip(), 6),
                p99_peak_us: round(coarse.clone().map(|w| w.latency.p99.as_micros_f64()).fold(0.0, peak), 3),
                reject_delay_peak_us: round(coarse.map(|w| w.reject_delay_mean_ns / 1e3).fold(0.0, peak), 3),
            }
        })
        .collect()
}

/// Goodput after a shift, in requests per millisecond.
struct GoodputSeries {
    rates: Vec<f64>,
    settled_rate: f64,
}

impl GoodputSeries {
    fn new(fine: &[FineWindow]) -> Self {
        let good: Vec<f64> = fine.iter().map(|window| window.good as f64).collect();
        let mut second_half = span_means(&good[good.len() / 2..]);
        let settled = median(&mut second_half);
        GoodputSeries { rates: good, settled_rate: settled }
    }

    /// Milliseconds until the first 20 ms with 95 % of the settled goodput that no collapse
    /// follows.
    ///
    /// Queues need a moment to fill, so a collapse may begin after 20 good milliseconds. Lesser
    /// dips later show in [`GoodputSeries::dip`]; excluding them, too, would measure noise.
    /// Collapses in the second half of the time belong to the settled state.
    fn recovery(&self) -> Option<usize> {
        if self.settled_rate <= 0.0 {
            return None; // a share of zero is no recovery
        }
        let sliding: Vec<f64> = self.rates.windows(WINDOWS_PER_SPAN).map(mean).collect();
        let collapsed = |value: &f64| *value < self.collapse_threshold();
        let first_half = &sliding[..sliding.len().min(self.rates.len() / 2)];
        let from = first_half.iter().rposition(collapsed).map_or(0, |last| last + 1);
        let enough = |value: &f64| *value >= RECOVERY_SHARE * self.settled_rate;
        sliding[from..].iter().position(enough).map(|after| from + after)
    }

    /// Milliseconds until the first 20 ms with 95 % of the settled goodput, regardless of later
    /// collapses.
    ///
    /// On a machine that takes the server's CPU for milliseconds, a collapse may not be the
    /// controller's.
    fn time_to_settled(&self) -> Option<usize> {
        if self.settled_rate <= 0.0 {
            return None;
        }
        self.rates.windows(WINDOWS_PER_SPAN).position(|span| mean(span) >= RECOVERY_SHARE * self.settled_rate)
    }

    /// Goodput below which it counts as a collapse.
    fn collapse_threshold(&self) -> f64 {
        let requests = self.settled_rate * WINDOWS_PER_SPAN as f64;
        self.settled_rate * COLLAPSE_SHARE.min(1.0 - NOISE_DEVIATIONS / requests.sqrt())
    }

    fn dip(&self) -> f64 {
        let lowest = span_means(&self.rates).into_iter().fold(f64::INFINITY, f64::min);
        if self.settled_rate > 0.0 && lowest.is_finite() { lowest / self.settled_rate } else { 0.0 }
    }
}

/// Means of consecutive spans of 20 ms, without an incomplete last one.
fn span_means(good: &[f64]) -> Vec<f64> {
    good.chunks_exact(WINDOWS_PER_SPAN).map(mean).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::{Nanos, Time};

    /// Checks the settled goodput and the recovery of parts of `length` ms each.
    fn check(parts: &[(usize, u64)], settled: f64, recovery: Option<usize>) {
        let good = parts.iter().flat_map(|(length, good)| std::iter::repeat_n(*good, *length));
        let window = |(at, good)| FineWindow { start: Time::ZERO + Nanos::from_millis(at), completed: good, good };
        let fine: Vec<FineWindow> = (0..).zip(good).map(window).collect();
        let goodput = GoodputSeries::new(&fine);
        assert_eq!((goodput.settled_rate, goodput.recovery()), (settled, recovery), "{parts:?}");
    }

    #[test]
    fn recovery_is_the_first_full_interval_without_a_later_collapse() {
        check(&[(400, 800)], 800.0, Some(0));
        check(&[(100, 0), (300, 800)], 800.0, Some(99)); // 19 of 20 ms are 95 %
        check(&[(30, 800), (70, 0), (300, 800)], 800.0, Some(99));
        check(&[(30, 800), (70, 700), (300, 800)], 800.0, Some(0)); // a dip, no collapse
        check(&[(300, 800), (30, 0), (70, 800)], 800.0, Some(0)); // belongs to the settled state
        check(&[(400, 700)], 700.0, Some(0));
    }

    #[test]
    fn time_to_settled_ignores_a_later_collapse() {
        let parts = [(30, 0), (40, 800), (70, 0), (300, 800)];
        let good: Vec<f64> = parts.iter().flat_map(|(ms, good)| std::iter::repeat_n(f64::from(*good), *ms)).collect();
        let goodput = GoodputSeries { rates: good, settled_rate: 800.0 };
        assert_eq!((goodput.time_to_settled(), goodput.recovery()), (Some(29), Some(139)));
        assert_eq!(GoodputSeries { rates: vec![0.0; 100], settled_rate: 0.0 }.time_to_settled(), None);
    }

    #[test]
    fn no_goodput_gives_no_recovery() {
        check(&[(100, 800), (300, 0)], 0.0, None);
        check(&[(400, 0)], 0.0, None);
        check(&[], 0.0, None);
        check(&[(10, 800)], 0.0, None);
    }

    #[test]
    fn random_gaps_are_no_collapse() {
        let mut parts = [(1, 1), (1, 0), (1, 2), (1, 1)].repeat(100);
        parts[80..94].fill((1, 0)); // 14 ms without a response where 14 are expected
        check(&parts, 1.0, Some(0));
    }
}
