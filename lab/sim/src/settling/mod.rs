//! When a run has settled, and when it has measured enough.
//!
//! A run is observed in windows of equal width. The warm-up ends when MSER-5 finds that the initial
//! transient of goodput lies in the first half of the windows (`mser`), and neither goodput nor the
//! controller's state drifts in the second. The measurement ends when the confidence interval of
//! the mean goodput is narrow enough by batch means (`batches`), but not before it is as long as
//! the warm-up. If a series drifts during the measurement, the run had not settled: the measurement
//! starts again.
//!
//! Goodput that has collapsed tells little: all windows are alike before a slow controller has
//! reacted, and while a backlog drains. Such a run waits for both.
//!
//! Some control loops wander for ever. At the bound of the warm-up, and in runs with fixed times,
//! there is no more time to wait for: then a drift is one only if it exceeds what a stationary
//! series with the same dependence on its own past would show. Runs that settle before the bound
//! are not affected.
//!
//! Contains no events: [`Settling`] receives windows and returns decisions, so that tests need no
//! run.

mod batches;
mod mser;

use crate::config::{Observation, StoppingRule};
use batches::BatchMeans;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::SettlingOutcome;

/// Windows between two checks, as a share of the windows so far.
const CHECK_GROWTH: f64 = 0.2;
/// Goodput below this share of the offered rate has collapsed. What is left comes in bursts, so its
/// changes and its half-width are judged against this share.
const COLLAPSED: f64 = 0.1;

/// Reactions of the controller before a collapsed goodput can have settled.
const REACTIONS: u64 = 5;
/// Ends of requests beyond the requests offered, as a share of these, from which on a backlog
/// drains; and in standard deviations of a count.
const DRAINING: f64 = 0.02;
const DRAINING_DEVIATIONS: f64 = 4.0;

/// Values of a run in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WindowSample {
    /// Requests issued.
    pub(crate) offered: f64,
    /// Responses within the objective.
    pub(crate) good: f64,
    /// All responses.
    pub(crate) completed: f64,
    /// Requests that ended at their clients: expired, displaced or throttled.
    pub(crate) at_clients: f64,
    /// Requests that the server rejected.
    pub(crate) rejected: f64,
    /// Credits of the controller's pool at the window's end, if it has a pool.
    pub(crate) pool: f64,
}

/// Share of the requests that the controller must hold back or reject for its pool to matter.
const BINDING: f64 = 0.001;

/// Change of goodput between two halves that counts as none, as a share of goodput.
const GOODPUT_TOLERANCE: f64 = 0.005;
/// Change of a collapsed goodput that counts as none, as a share of the offered rate.
const COLLAPSED_TOLERANCE: f64 = 0.01;
/// Tolerances by which goodput's halves may differ in a run with fixed times, wander or not: such a
/// run is too short to say what its goodput is.
const WANDER_TOLERANCES: f64 = 10.0;
/// The same of the controller's state, as a share of its level. Goodput tells whether the state
/// matters; the state only tells whether a ramp is in progress.
const STATE_TOLERANCE: f64 = 0.2;

/// Share of the requests offered from which on goodput follows the arrivals: the server is below
/// its capacity.
const FOLLOWS: f64 = 0.9;

/// Spans of bursts in a measurement: several for each of the batches that tell its precision.
const BURSTS: u64 = 40;

/// A value of a window.
type Field = fn(&WindowSample) -> f64;

fn values(samples: &[WindowSample], of: Field) -> Vec<f64> {
    samples.iter().map(of).collect()
}

/// Mean over the windows; zero without windows.
fn mean(samples: &[WindowSample], of: Field) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
}

/// Goodput less this share of the requests offered.
fn without_arrivals(samples: &[WindowSample], share: f64) -> Vec<f64> {
    samples.iter().map(|sample| sample.good - share * sample.offered).collect()
}

/// Whether the halves of a series differ by more than a tolerance and chance.
type DriftTest = fn(&[f64], f64) -> bool;

/// A series that must be stationary.
struct Series {
    values: Vec<f64>,
    /// The values without what the noise of the arrivals explains; empty if it explains nothing.
    without_arrivals: Vec<f64>,
    /// Change of the mean that counts as none.
    tolerance: f64,
    is_state: bool,
}

/// Goodput, and the controller's state in the clients (what they hold back) and in the server (its
/// pool).
///
/// A pool that holds nothing back may grow for minutes at a light load. It does not matter then.
fn series(samples: &[WindowSample]) -> Vec<Series> {
    let recent = &samples[samples.len() / 2..];
    let offered = mean(recent, |sample| sample.offered);
    let state = |of: Field, floor: f64| Series {
        values: values(samples, of),
        without_arrivals: Vec::new(),
        tolerance: STATE_TOLERANCE * mean(recent, of).max(floor),
        is_state: true,
    };
    let good = mean(recent, |sample| sample.good);
    let tolerance = if has_collapsed(recent) { COLLAPSED_TOLERANCE * offered } else { GOODPUT_TOLERANCE * good };
    let goodput = Series {
        values: values(samples, |sample| sample.good),
        without_arrivals: if good >= FOLLOWS * offered && offered > 0.0 {
            without_arrivals(samples, good / offered)
        } else {
            Vec::new()
        },
        tolerance,
        is_state: false,
    };
    let mut all = vec![goodput, state(|sample| sample.at_clients, COLLAPSED * offered)];
    if mean(recent, |sample| sample.at_clients + sample.rejected) >= BINDING * offered {
        all.push(state(|sample| sample.pool, 0.0));
    }
    all
}

impl Series {
    /// True if the mean differs between the halves of the values from `start` on by this test, and
    /// the arrivals do not explain it.
    fn drifts_from(&self, start: usize, test: DriftTest) -> bool {
        let differ = |values: &[f64]| test(values.get(start..).unwrap_or_default(), self.tolerance);
        differ(&self.values) && (self.without_arrivals.is_empty() || differ(&self.without_arrivals))
    }

    /// True if the transient ends in the first half and the second half does not drift: at the
    /// beginning of a rise MSER finds no end at all. The state may wander within its tolerance.
    fn is_settled(&self) -> bool {
        let count = self.values.len();
        let ends = || mser::truncation(&self.values).is_some_and(|end| end * 2 <= count);
        !self.drifts_from(count / 2, batches::halves_differ) && (self.is_state || ends())
    }

    /// True if the second half of the values is as stationary as a series that wanders can be seen
    /// to be. MSER does not tell: it ends a transient wherever the wander is small for a while.
    fn may_wander(&self) -> bool {
        !self.drifts_from(self.values.len() / 2, batches::halves_differ_beyond_wander)
    }
}

/// Whether goodput has collapsed.
fn has_collapsed(samples: &[WindowSample]) -> bool {
    mean(samples, |sample| sample.good) < COLLAPSED * mean(samples, |sample| sample.offered)
}

/// Whether goodput has collapsed, but more requests end than are offered: what comes after the
/// backlog is unlike what is seen.
fn drains(samples: &[WindowSample]) -> bool {
    let sum = |of: Field| samples.iter().map(of).sum::<f64>();
    let (offered, ended) =
        (sum(|sample| sample.offered), sum(|sample| sample.completed + sample.rejected + sample.at_clients));
    let chance = (DRAINING * offered).max(DRAINING_DEVIATIONS * (2.0 * offered).sqrt());
    has_collapsed(samples) && ended > offered + chance
}

/// A decision at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing changes.
    Continue,
    /// The measurement begins at this time.
    MeasureFrom(Time),
    /// The run had not settled: discard the measurement, and continue to warm up.
    Discard,
    /// The run ends at this time.
    EndAt(Time),
}

/// State of the warm-up and the measurement of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    rule: StoppingRule,
    samples: Vec<WindowSample>,
    phase: Phase,
    /// Number of windows of the phase at which the next check is due.
    next_check: usize,
    /// Longest time between two changes of what the controller admits.
    reaction: Nanos,
    outcome: SettlingOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmingUp,
    /// Index of the first window that is measured as a whole.
    Measuring(usize),
    Ended,
}

impl Settling {
    pub(crate) fn new(rule: StoppingRule) -> Settling {
        Settling {
            rule,
            samples: Vec::new(),
            phase: Phase::WarmingUp,
            next_check: rule.min_windows as usize,
            reaction: Nanos::ZERO,
            outcome: SettlingOutcome::default(),
        }
    }

    /// Says how long a controller takes from one change to the next; the longest counts.
    pub(crate) fn expect_reaction(&mut self, reaction: Nanos) {
        self.reaction = self.reaction.max(reaction);
    }

    /// Whether a run with these windows may change after `now` without any sign of it.
    fn may_change(&self, now: Time, samples: &[WindowSample]) -> bool {
        has_collapsed(samples) && now.since(Time::ZERO) < self.reaction * REACTIONS || drains(samples)
    }

    /// End of the next window after `now`; `NEVER` once nothing is left to observe.
    pub(crate) fn next_window(&self, now: Time) -> Time {
        let next = now + self.rule.window;
        match self.rule.observation {
            Observation::FixedTimes { until, .. } if next.since(Time::ZERO) > until => Time::NEVER,
            _ if self.phase == Phase::Ended => Time::NEVER,
            _ => next,
        }
    }

    /// Takes the window that ends at `now`. A decision takes effect one window later, so that work
    /// in progress at that time is counted exactly.
    pub(crate) fn observe(&mut self, now: Time, sample: WindowSample) -> Decision {
        self.samples.push(sample);
        match self.rule.observation {
            Observation::FixedTimes { .. } => Decision::Continue,
            Observation::Adaptive => self.decide(now),
        }
    }

    fn decide(&mut self, now: Time) -> Decision {
        let count = self.samples.len();
        let next = now + self.rule.window;
        match self.phase {
            Phase::WarmingUp => {
                let is_late = next.since(Time::ZERO) >= self.rule.settle_within;
                if count < self.next_check && !is_late {
                    return Decision::Continue;
                }
                let is_settled: fn(&Series) -> bool = if is_late { Series::may_wander } else { Series::is_settled };
                self.outcome.settled = self.has_enough_answers()
                    && series(&self.samples).iter().all(is_settled)
                    && !self.may_change(now, &self.samples[count / 2..]);
                if !self.outcome.settled && !is_late {
                    self.next_check = count + growth(count);
                    return Decision::Continue;
                }
                self.phase = Phase::Measuring(count + 1);
                // A drift after a transient takes about as long as the transient to be seen.
                self.next_check = if self.outcome.settled { count } else { self.rule.min_windows as usize };
                self.outcome.from = next.since(Time::ZERO);
                Decision::MeasureFrom(next)
            }
            Phase::Measuring(first) => self.decide_measuring(now, first),
            Phase::Ended => Decision::Continue,
        }
    }

    /// Whether client halves have had enough answers to adapt to.
    fn has_enough_answers(&self) -> bool {
        let answers: f64 = self.samples.iter().map(|sample| sample.completed + sample.rejected).sum();
        answers >= f64::from(self.rule.min_answers)
    }

    fn decide_measuring(&mut self, now: Time, first: usize) -> Decision {
        let next = now + self.rule.window;
        let measured = self.samples.get(first..).unwrap_or_default();
        let is_last = next.since(Time::ZERO).saturating_sub(self.outcome.from) >= self.rule.measure_within;
        if measured.len() < self.next_check && !is_last {
            return Decision::Continue;
        }
        let may_restart = next.since(Time::ZERO) < self.rule.settle_within;
        let drifts =
            drifts(measured, if may_restart { batches::halves_differ } else { batches::halves_differ_beyond_wander })
                || drains(measured);
        if drifts && may_restart {
            self.phase = Phase::WarmingUp;
            self.next_check = self.samples.len() + growth(self.samples.len());
            return Decision::Discard;
        }
        let half_width = relative_half_width(measured);
        let responses: f64 = measured.iter().map(|sample| sample.completed).sum();
        let has_bursts = self.rule.burst_span > Nanos::ZERO;
        let without_arrivals = if has_bursts { None } else { without_noise_of_arrivals(measured) };
        let mut widths = [half_width, without_arrivals].into_iter().flatten();
        let is_precise = widths.any(|width| width <= self.rule.precision);
        let least_measured = self.rule.least_measured.max(self.rule.burst_span * BURSTS);
        let is_long = self.rule.window * measured.len() as u64 >= least_measured;
        let is_enough =
            is_long && responses >= f64::from(self.rule.min_responses) && (is_precise || !self.outcome.settled);
        if !(is_enough || is_last || drifts) {
            self.next_check = measured.len() + growth(measured.len());
            return Decision::Continue;
        }
        // The bound may be as long as the least length: the run ends one window from now.
        let has_many_bursts = self.rule.window * (measured.len() as u64 + 1) >= self.rule.burst_span * BURSTS;
        let is_known = (!has_bursts || has_many_bursts && is_precise) && has_answers(measured);
        self.outcome.settled &= !drifts && is_known;
        self.outcome.throughput_settled = throughput_is_steady(measured) && is_known;
        self.outcome.half_width = half_width;
        self.phase = Phase::Ended;
        Decision::EndAt(next)
    }

    /// The outcome, at the end of the run.
    pub(crate) fn outcome(&self) -> SettlingOutcome {
        let Observation::FixedTimes { measured_from, until } = self.rule.observation else { return self.outcome };
        let first = (measured_from.0.div_ceil(self.rule.window.0.max(1)) as usize).min(self.samples.len());
        let second_half = &self.samples[self.samples.len() / 2..];
        let has_demand = self.samples.iter().any(|sample| sample.offered > 0.0);
        let is_known = has_answers(&self.samples) || !has_demand;
        SettlingOutcome {
            // There is no more time to wait for, as at the bound of a warm-up. But the user chose
            // these times, and can choose longer ones.
            settled: is_known
                && !drifts(second_half, batches::halves_differ_beyond_wander)
                && !swings(second_half)
                && !drains(second_half),
            throughput_settled: throughput_is_steady(second_half) && is_known,
            from: measured_from,
            // The part before a shift does not tell how well the whole is known.
            half_width: if until < self.rule.measure_within {
                None
            } else {
                relative_half_width(&self.samples[first..])
            },
        }
    }
}

fn growth(count: usize) -> usize {
    ((count as f64 * CHECK_GROWTH) as usize).max(mser::BATCH)
}

/// Whether clients get answers at all. A rejection is one: a controller that rejects everything has
/// settled.
fn has_answers(samples: &[WindowSample]) -> bool {
    samples.iter().any(|sample| sample.completed + sample.rejected > 0.0)
}

/// True if the mean of a series differs between the halves of `samples`.
fn drifts(samples: &[WindowSample], test: DriftTest) -> bool {
    series(samples).iter().any(|series| series.drifts_from(0, test))
}

/// True if goodput differs so much between the halves of `samples` that its mean says little.
fn swings(samples: &[WindowSample]) -> bool {
    let far = |values: &[f64], tolerance| batches::halves_differ(values, WANDER_TOLERANCES * tolerance);
    series(samples).iter().any(|series| !series.is_state && series.drifts_from(0, far))
}

/// True if the mean of the throughput is the same in both halves of `samples`. It is judged once,
/// at the end: throughput may wander with the rest.
fn throughput_is_steady(samples: &[WindowSample]) -> bool {
    let completed: Field = |sample| sample.completed;
    !batches::halves_differ_beyond_wander(&values(samples, completed), GOODPUT_TOLERANCE * mean(samples, completed))
}

/// Half-width of the 95 % confidence interval of the mean of a series, over goodput's mean; `None`
/// with too few windows, or if the batches still depend on each other.
fn half_width_of(samples: &[WindowSample], series: &[f64]) -> Option<f64> {
    let level = mean(samples, |sample| sample.good).max(COLLAPSED * mean(samples, |sample| sample.offered));
    if level <= 0.0 {
        return (!samples.is_empty()).then_some(0.0);
    }
    let means = BatchMeans::of(series)?;
    (!means.is_correlated).then_some(means.half_width / level)
}

/// The same of goodput.
fn relative_half_width(samples: &[WindowSample]) -> Option<f64> {
    half_width_of(samples, &values(samples, |sample| sample.good))
}

/// The same of goodput, less what the noise of the arrivals explains.
///
/// Below capacity goodput follows the arrivals. Their noise is the same for all controllers,
/// because all meet the same arrivals. So it does not prolong a run. Bursts do: a run that ends
/// sooner than another meets others of them.
fn without_noise_of_arrivals(samples: &[WindowSample]) -> Option<f64> {
    let offered = mean(samples, |sample| sample.offered);
    let share = if offered > 0.0 { mean(samples, |sample| sample.good) / offered } else { 0.0 };
    half_width_of(samples, &without_arrivals(samples, share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Nanos;
    use leeward_workload::rng::{Purpose, Rng};

    const WINDOW: Nanos = Nanos::from_millis(10);

    fn rule() -> StoppingRule {
        StoppingRule {
            observation: Observation::Adaptive,
            window: WINDOW,
            min_windows: 100,
            min_answers: 0,
            settle_within: Nanos::from_secs(20),
            measure_within: Nanos::from_secs(20),
            precision: 0.01,
            min_responses: 1_000,
            least_measured: Nanos::ZERO,
            burst_span: Nanos::ZERO,
        }
    }

    /// Runs a series of goodput until its end; returns the outcome and the end.
    fn play(rule: StoppingRule, goodput: impl Fn(f64) -> f64) -> (SettlingOutcome, Time) {
        let mut settling = Settling::new(rule);
        let mut rng = Rng::new(1, Purpose::Service);
        let mut end = Time::NEVER;
        let mut now = Time::ZERO;
        while now < end {
            now += WINDOW;
            let noise = 1.0 + 0.1 * (rng.unit() - 0.5);
            let good = goodput(now.0 as f64 / 1e9) * noise;
            let sample = WindowSample { offered: 2_000.0, good, completed: good, ..WindowSample::default() };
            if let Decision::EndAt(at) = settling.observe(now, sample) {
                end = at;
            }
            assert!(now.0 < 100_000_000_000, "the run does not end");
        }
        (settling.outcome(), end)
    }

    #[test]
    fn a_steady_run_is_measured_after_the_least_warm_up() {
        let (outcome, end) = play(rule(), |_| 1_000.0);
        assert!(outcome.settled, "{outcome:?}");
        assert_eq!(outcome.from, WINDOW * 101);
        assert!(outcome.half_width.unwrap() <= 0.01);
        assert!(end.0 < 4_000_000_000, "{end:?}");
    }

    /// SEDA's clients change their rate once in a hundred responses. Before, the run stands still.
    #[test]
    fn a_start_almost_without_answers_is_not_measured() {
        let held_back = |at: f64| if at < 3.0 { 10.0 } else { 1_000.0 };
        let (outcome, _) = play(StoppingRule { min_answers: 10_000, ..rule() }, held_back);
        assert!(outcome.settled && outcome.from >= Nanos::from_secs(3), "{outcome:?}");
        let (outcome, _) = play(StoppingRule { min_answers: 10_000, ..rule() }, |_| 1.0);
        assert!(!outcome.settled, "{outcome:?}");
    }

    #[test]
    fn a_rise_of_seconds_is_not_measured() {
        let rise = |at: f64| 1_000.0 * (0.1 + 0.9 * (at / 4.0).min(1.0));
        let (outcome, _) = play(rule(), rise);
        assert!(outcome.settled && outcome.from >= Nanos::from_secs(4), "{outcome:?}");
    }

    #[test]
    fn a_plateau_before_a_rise_is_measured_again() {
        let plateau = |at: f64| if at < 1.7 { 400.0 } else { 400.0 + 600.0 * ((at - 1.7) / 2.0).min(1.0) };
        let (outcome, _) = play(rule(), plateau);
        assert!(outcome.settled && outcome.from >= Nanos::from_secs(3), "{outcome:?}");
    }

    #[test]
    fn a_run_that_still_rises_at_the_bound_did_not_settle() {
        let (outcome, end) = play(StoppingRule { settle_within: Nanos::from_secs(2), ..rule() }, |at| at * 100.0);
        assert!(!outcome.settled, "{outcome:?}");
        assert!(end.0 <= 4_000_000_000, "{end:?}");
    }

    #[test]
    fn throughput_may_settle_where_goodput_does_not() {
        let mut settling = Settling::new(StoppingRule { settle_within: Nanos::from_secs(2), ..rule() });
        for index in 1..=1_000u64 {
            let good = index as f64;
            let sample = WindowSample { offered: 2_000.0, good, completed: 1_500.0, ..WindowSample::default() };
            if let Decision::EndAt(_) = settling.observe(Time::ZERO + WINDOW * index, sample) {
                break;
            }
        }
        let outcome = settling.outcome();
        assert!(!outcome.settled && outcome.throughput_settled, "{outcome:?}");
    }

    #[test]
    fn a_change_that_the_arrivals_explain_is_no_drift() {
        let drifts = |share_after: f64| {
            let mut rng = Rng::new(1, Purpose::Service);
            let sample = |index: u64| {
                let is_late = index >= 200;
                let offered = if is_late { 1_030.0 } else { 1_000.0 } + 10.0 * rng.unit();
                let good = offered * if is_late { share_after } else { 1.0 };
                WindowSample { offered, good, completed: good, ..WindowSample::default() }
            };
            super::drifts(&(0..400).map(sample).collect::<Vec<_>>(), batches::halves_differ)
        };
        assert!(!drifts(1.0), "more arrivals, all of them in time");
        assert!(drifts(0.93), "more arrivals, and fewer of them in time");
    }

    /// A controller that rejects everything has settled. A server that says nothing has not.
    #[test]
    fn no_goodput_is_settled_with_answers_only() {
        for (rejected, settles) in [(2_000.0, true), (0.0, false)] {
            let mut settling = Settling::new(StoppingRule { min_responses: 0, ..rule() });
            let sample = WindowSample { offered: 2_000.0, rejected, ..WindowSample::default() };
            let ends =
                |index: &u64| matches!(settling.observe(Time::ZERO + WINDOW * *index, sample), Decision::EndAt(_));
            assert!((1..=4_000).find(ends).is_some());
            let outcome = settling.outcome();
            assert_eq!((outcome.settled, outcome.half_width), (settles, Some(0.0)), "{outcome:?}");
            assert_eq!(outcome.throughput_settled, settles, "{outcome:?}");
        }
    }

    const SPAN: Nanos = Nanos::from_millis(500);

    /// Peaks of 1.8 times the mean and valleys of a fifth of it, below capacity, for spans of 500
    /// ms on average.
    fn play_bursts(rule: StoppingRule) -> (SettlingOutcome, Nanos, f64) {
        let mut settling = Settling::new(StoppingRule { burst_span: SPAN, ..rule });
        let mut rng = Rng::new(1, Purpose::Arrivals);
        let (mut good, mut change, mut sum) = (1_800.0, 0.0, 0.0);
        for index in 1u64.. {
            let now = Time::ZERO + WINDOW * index;
            while now.0 as f64 / 1e9 > change {
                (good, change) = (2_000.0 - good, change + 0.5 * rng.exponential());
            }
            let sample = WindowSample { offered: good, good, completed: good, ..WindowSample::default() };
            sum += good;
            if let Decision::EndAt(end) = settling.observe(now, sample) {
                let outcome = settling.outcome();
                return (outcome, end.since(Time::ZERO + outcome.from), sum / index as f64);
            }
        }
        unreachable!()
    }

    #[test]
    fn bursts_are_measured_until_their_mean_is_known() {
        let within = |secs: u64| StoppingRule { measure_within: Nanos::from_secs(secs), precision: 0.1, ..rule() };
        let (outcome, measured, mean) = play_bursts(within(3_000));
        assert!(outcome.throughput_settled, "{outcome:?}");
        assert!(outcome.settled && outcome.half_width.is_some_and(|width| width <= 0.1), "{outcome:?}");
        assert!(measured >= SPAN * BURSTS && (mean / 1_000.0 - 1.0).abs() < 0.15, "{measured} {mean}");
        let (outcome, measured, _) = play_bursts(within(3));
        assert!(!outcome.throughput_settled, "{outcome:?}");
        assert!(!outcome.settled && measured <= Nanos::from_secs(4), "{measured} {outcome:?}");
    }

    /// The bound cuts periods of pauses off, and may be as long as all spans of bursts.
    #[test]
    fn bursts_settle_within_a_bound_as_short_as_they_are() {
        let measure_within = SPAN * BURSTS;
        for least_measured in [Nanos::ZERO, measure_within] {
            let rule = StoppingRule { measure_within, least_measured, precision: 0.5, ..rule() };
            let (outcome, measured, _) = play_bursts(rule);
            assert!(outcome.settled && outcome.throughput_settled, "{outcome:?}");
            assert_eq!(measured, measure_within);
        }
    }

    /// A controller that acts once a second: nothing is in time until it has acted three times.
    #[test]
    fn a_collapse_before_a_slow_controller_reacts_is_not_settled() {
        let play = |reaction: Nanos| {
            let mut settling = Settling::new(rule());
            settling.expect_reaction(reaction);
            (1..=4_000u64)
                .find(|index| {
                    let good = if *index < 300 { 0.0 } else { 1_000.0 };
                    let sample = WindowSample { offered: 2_000.0, good, completed: 1_500.0, ..WindowSample::default() };
                    matches!(settling.observe(Time::ZERO + WINDOW * *index, sample), Decision::EndAt(_))
                })
                .map(|_| settling.outcome())
                .unwrap()
        };
        assert!(play(Nanos::ZERO).from < Nanos::from_secs(2), "a fast one would have acted");
        let slow = play(Nanos::from_secs(1));
        assert!(slow.settled && slow.from > Nanos::from_secs(3), "{slow:?}");
    }

    #[test]
    fn a_backlog_that_drains_is_not_settled() {
        let drains = |completed: f64| {
            let sample = WindowSample { offered: 1_000.0, completed, ..WindowSample::default() };
            super::drains(&vec![sample; 100])
        };
        assert!(drains(1_050.0) && !drains(1_010.0) && !drains(500.0));
        let healthy = WindowSample { offered: 1_000.0, good: 900.0, completed: 1_050.0, ..WindowSample::default() };
        assert!(!super::drains(&[healthy; 100]), "goodput shows a change");
    }

    #[test]
    fn a_measurement_has_several_periods() {
        let least_measured = Nanos::from_secs(8);
        let (outcome, end) = play(StoppingRule { least_measured, ..rule() }, |_| 1_000.0);
        assert!(end.since(Time::ZERO + outcome.from) >= least_measured, "{outcome:?} {end:?}");
    }

    /// The noise of the arrivals ends no run later, but the interval of goodput has it.
    #[test]
    fn the_interval_of_goodput_has_the_noise_of_the_arrivals() {
        let mut rng = Rng::new(1, Purpose::Service);
        let mut sample = || {
            let offered = 1_000.0 + 400.0 * (rng.unit() - 0.5);
            WindowSample { offered, good: offered, completed: offered, ..WindowSample::default() }
        };
        let samples: Vec<WindowSample> = (0..400).map(|_| sample()).collect();
        let (own, without) = (relative_half_width(&samples).unwrap(), without_noise_of_arrivals(&samples).unwrap());
        assert!(own > 0.005 && without < 1e-9, "{own} {without}");
    }

    #[test]
    fn fixed_times_without_an_answer_are_not_settled() {
        let observation = Observation::FixedTimes { measured_from: Nanos::ZERO, until: Nanos::from_secs(2) };
        let mut settling = Settling::new(StoppingRule { observation, ..rule() });
        for index in 1..=200u64 {
            let sample = WindowSample { offered: 2_000.0, ..WindowSample::default() };
            settling.observe(Time::ZERO + WINDOW * index, sample);
        }
        let outcome = settling.outcome();
        assert!(!outcome.settled && !outcome.throughput_settled, "{outcome:?}");
    }

    #[test]
    fn a_measurement_is_at_most_as_long_as_its_bound() {
        // Goodput swings with a period as long as the measurement.
        let swing = |at: f64| 1_000.0 + 300.0 * (at * std::f64::consts::PI).sin();
        let (outcome, end) = play(StoppingRule { measure_within: Nanos::from_secs(5), ..rule() }, swing);
        assert!(end.since(Time::ZERO + outcome.from) <= Nanos::from_secs(5) + WINDOW, "{outcome:?} {end:?}");
    }

    #[test]
    fn nothing_is_observed_after_the_demand_shifts() {
        let until = Nanos::from_millis(105);
        let observation = Observation::FixedTimes { measured_from: Nanos::ZERO, until };
        let settling = Settling::new(StoppingRule { observation, ..rule() });
        assert_eq!(settling.next_window(Time::ZERO), Time::ZERO + WINDOW);
        assert_eq!(settling.next_window(Time::ZERO + WINDOW * 9), Time::ZERO + WINDOW * 10);
        assert_eq!(settling.next_window(Time::ZERO + WINDOW * 10), Time::NEVER);
    }

    #[test]
    fn fixed_times_are_judged_by_the_second_half_of_the_run() {
        let fixed = |until: u64| StoppingRule {
            observation: Observation::FixedTimes { measured_from: Nanos::from_secs(1), until: Nanos::from_secs(until) },
            ..rule()
        };
        let judge = |until: u64, goodput: fn(f64) -> f64| {
            let mut settling = Settling::new(fixed(until));
            for index in 1..=until * 100 {
                let good = goodput(index as f64 / 100.0);
                let sample = WindowSample { offered: 2_000.0, good, completed: good, ..WindowSample::default() };
                assert_eq!(settling.observe(Time::ZERO + WINDOW * index, sample), Decision::Continue);
            }
            settling.outcome()
        };
        assert!(judge(4, |_| 1_000.0).settled);
        assert!(judge(4, |at| if at < 1.5 { 100.0 } else { 1_000.0 }).settled);
        assert!(!judge(4, |at| at * 100.0).settled);
        assert!(!judge(4, |at| if at < 3.2 { 300.0 } else { 1_000.0 }).settled, "no wander tells so little");
        assert!(judge(4, |at| 1_000.0 + 100.0 * (at * 30.0).sin()).settled, "a wander that the run is long enough for");
    }
}
