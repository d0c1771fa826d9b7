//! Leeward's own policy. It changes the setup when the load is surely in a range where another one
//! is better. It does so at once when the load surely exceeds the setup's maximum. `detect`
//! computes bounds of the load; `learn` corrects the curves by measurements.

mod detect;
mod learn;

use super::curves::{Curve, Envelope, Objective, TailPercentile};
use super::policy::{
    PolicySpec, PollSchedule, SwitchReason, ThreadEnvironment, ThreadGauges, ThreadSignals, ThreadingPolicy,
};
use super::preferred::{FANOUT, PreferredSetup, with_fanout};
use super::setup::ThreadingSetup;
use super::window::WINDOW_MAX;
use detect::{Detector, LoadBounds};
use learn::{Learner, Mode};
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::units::{Nanos, Rate, Time};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "leeward",
    summary: "the setup of least predicted tail or CPU, changed when the load is surely another",
    source: "",
    params: &[
        ParamSpec {
            name: "objective",
            kind: ParamKind::Choice(&["latency", "cpu"]),
            default: "latency",
            doc: "least predicted tail, or least CPU of those whose predicted tail is within 0.8 of the SLO",
            tuning_values: &[],
        },
        ParamSpec {
            name: "tail",
            kind: ParamKind::Choice(&["p99", "p999"]),
            default: "p99",
            doc: "which percentile is the tail",
            tuning_values: &[],
        },
        ParamSpec {
            name: "gain",
            kind: ParamKind::Number { min: 0.0, max: 10.0 },
            default: "5%",
            doc: "by how much another setup must be better",
            tuning_values: &["2%", "5%", "10%"],
        },
        ParamSpec {
            name: "error",
            kind: ParamKind::Number { min: 1e-9, max: 0.1 },
            // Measured on Poisson arrivals around a crossing (tests/suite/detection.rs): at most
            // 0.1 changes per second at all three values. A step to four times the load is detected
            // after 24, 16 and 12 arrivals at 0.0001, 0.001 and 0.01.
            default: "0.01",
            doc: "how often a bound of the load may be wrong, per decision",
            tuning_values: &["0.0001", "0.001", "0.01"],
        },
        ParamSpec {
            name: "dwell",
            kind: ParamKind::ANY_DURATION,
            default: "20ms, or ten times what a switch costs",
            doc: "how long a setup is kept that sustains the load",
            tuning_values: &["5ms", "20ms", "100ms"],
        },
        ParamSpec {
            name: "learn",
            kind: ParamKind::Choice(&["off", "shadow", "on"]),
            default: "off",
            doc: "correct the curves by what is seen, and try neighbours with 1 % of the requests; shadow: only say what that would choose",
            tuning_values: &[],
        },
        FANOUT,
    ],
    build: |params, environment| Ok(Box::new(Leeward::new(params, environment)?)),
};

/// Part of a setup's maximum load up to which it is used: beyond it, queues last long.
const MARGIN: f64 = 0.9;
/// Part of the objective that the predicted tail of a setup chosen for its CPU may take.
const SLACK: f64 = 0.8;
/// Arrivals between two decisions. Bounds change little in fewer.
const POLL_ARRIVALS: u16 = 4;
/// Dwells for which a setup chosen for a backlog stays, at first and at most: each backlog soon
/// after the last doubles the number.
const HOLD_DWELLS: (u64, u64) = (5, 1_000);

/// Leeward's own policy; see the module.
#[derive(Clone, Debug)]
pub struct Leeward {
    envelope: Envelope,
    tail: TailPercentile,
    /// The best setup at zero load.
    lowest: ThreadingSetup,
    detector: Detector,
    gain: f64,
    dwell: Nanos,
    target: Nanos,
    /// Age of the oldest waiting request that counts as a backlog.
    backlog: Nanos,
    /// End and length of the hold, in which a setup chosen for a backlog is kept.
    hold: (Time, Nanos),
    /// The current setup and the index of its curve.
    curve_index: Option<(ThreadingSetup, usize)>,
    /// The greatest load below the last estimate at which another setup is better.
    lower_crossing: Option<Rate>,
    /// Whether the current setup was the best for the last estimate.
    is_best: bool,
    learner: Learner,
    /// Index of the learned best setup, and the range of load for which it holds.
    learned: Option<(usize, f64, f64)>,
    /// Whether requests are rejected or wait for too long.
    is_under_pressure: bool,
    preferred: PreferredSetup,
    timeout: Time,
}

impl Leeward {
    fn new(params: &Params, environment: &ThreadEnvironment) -> Result<Self, ParamError> {
        let curves = with_fanout("leeward", params, environment.curves.as_deref())?;
        let tail = if params.choice("tail", "p99") == "p99" { TailPercentile::P99 } else { TailPercentile::P999 };
        let objective = match (params.choice("objective", "latency"), environment.slo) {
            ("latency", _) => Objective::Latency(tail),
            (_, Some(slo)) => Objective::Cpu(tail, slo.scale(SLACK)),
            (_, None) => return Err(ParamError::Conflict("`objective = \"cpu\"` needs an SLO".into())),
        };
        let mode = match (params.choice("learn", "off"), environment.slo) {
            ("off", _) => Mode::Off,
            (_, None) => return Err(ParamError::Conflict("`learn` needs an SLO".into())),
            ("shadow", _) => Mode::Shadow,
            _ => Mode::On,
        };
        let learner = Learner::new(mode, curves.all().len());
        let envelope = Envelope::new(curves, objective, MARGIN);
        let dwell = params.duration("dwell", Nanos::from_millis(20).max(environment.switch_cost * 10));
        let lowest = envelope.best(Rate(0.0)).setup;
        Ok(Leeward {
            envelope,
            tail,
            lowest,
            detector: Detector::new(params.number("error", 0.01)),
            gain: params.number("gain", 0.05),
            dwell,
            target: environment.target,
            backlog: environment.slo.map_or(Nanos::MAX, |slo| slo / 2),
            hold: (Time::ZERO, Nanos::ZERO),
            curve_index: None,
            learner,
            learned: None,
            lower_crossing: None,
            is_best: true,
            is_under_pressure: false,
            preferred: PreferredSetup::new(lowest),
            timeout: Time::NEVER,
        })
    }

    /// Whether `to` is better than `from` at this load by more than the gain, with the factors
    /// learned at `estimate`.
    fn is_better(&self, to: usize, from: usize, load: f64, estimate: f64) -> bool {
        let all = self.envelope.curves().all();
        match (self.score(to, load, estimate), self.score(from, load, estimate)) {
            (Some(to), Some(from)) => from > to * (1.0 + self.gain),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => all[to].max_load > all[from].max_load,
        }
    }

    /// Score of the setup at `index`, with the factor learned at `estimate` if learning is on: at
    /// the bounds of a load there may be no measurements.
    fn score(&self, index: usize, load: f64, estimate: f64) -> Option<f64> {
        let score = self.envelope.score(&self.envelope.curves().all()[index], Rate(load))?;
        Some(if self.learner.is_on() { score * self.learner.factor(estimate, index) } else { score })
    }

    /// Index of the best setup at this load with the learned factors.
    fn learned_best(&mut self, load: f64) -> Option<usize> {
        // Factors are constant within a bucket: one search holds for nearby loads, until the next
        // latency window.
        if let Some((index, low, high)) = self.learned
            && (low..high).contains(&load)
        {
            return Some(index);
        }
        let learned = |index: usize| {
            let score = self.envelope.score(&self.envelope.curves().all()[index], Rate(load))?;
            Some((score * self.learner.factor(load, index), index))
        };
        let scored = (0..self.envelope.curves().all().len()).filter_map(learned);
        let (_, index) = scored.min_by(|a, b| a.0.total_cmp(&b.0))?;
        self.learned = Some((index, load * 0.98, load * 1.02));
        Some(index)
    }

    /// Learns from the signals; returns the setup to try, or to return to, if a trial begins or
    /// ends.
    fn learn(
        &mut self,
        signals: &ThreadSignals,
        bounds: &LoadBounds,
        index: usize,
    ) -> Option<(ThreadingSetup, SwitchReason)> {
        let load = bounds.mean;
        let predicted = self.envelope.curves().all()[index].latency(TailPercentile::P99, Rate(load));
        if self.learner.observe(signals, load, index, predicted) {
            self.learned = None;
        }
        let is_calm = !self.is_under_pressure && signals.oldest_wait <= self.backlog && signals.now >= self.hold.0;
        let is_safe = is_calm && bounds.high < self.envelope.curves().all()[index].max_load / 2.0;
        if self.learner.has_trial() {
            let (home, is_bad) = self.learner.finish_trial(signals, is_safe)?;
            if is_bad {
                self.learner.penalize(load, index);
                self.learned = None;
            }
            return Some((self.envelope.curves().all()[home].setup, SwitchReason::Exploration));
        }
        if !is_safe || signals.now.since(signals.current_since) < self.dwell {
            return None;
        }
        let envelope = &self.envelope;
        let tail = |index: usize| envelope.score(&envelope.curves().all()[index], Rate(load));
        let index = self.learner.trial(signals, bounds, envelope.curves(), index, tail)?;
        Some((envelope.curves().all()[index].setup, SwitchReason::Exploration))
    }

    /// Returns another setup for these bounds and the reason, if the current one should change.
    fn choose(&mut self, signals: &ThreadSignals, bounds: &LoadBounds) -> Option<(ThreadingSetup, SwitchReason)> {
        let now = signals.now;
        let (trained, bend) = self.envelope.best_and_crossing(Rate(bounds.mean));
        self.lower_crossing = bend;
        // Searched only after a change.
        if self.curve_index.is_none_or(|(setup, _)| setup != signals.current) {
            self.curve_index = self.envelope.curves().index(signals.current).map(|index| (signals.current, index));
        }
        let learned = if self.learner.is_on() { self.learned_best(bounds.mean) } else { None };
        let to = learned.unwrap_or(trained);
        let Some((_, index)) = self.curve_index else {
            return Some((self.envelope.curves().all()[to].setup, SwitchReason::Better));
        };
        let all = self.envelope.curves().all();
        let (best, from) = (&all[to], &all[index]);
        if bounds.low > from.max_load * MARGIN && best.max_load > from.max_load {
            return Some((best.setup, SwitchReason::OverCapacity));
        }
        if signals.oldest_wait > self.backlog && now >= self.hold.0 {
            let stronger = |(_, curve): (Rate, &Curve)| (curve.max_load > from.max_load).then_some(curve.setup);
            let setup = self.envelope.intervals().find_map(stronger);
            if let Some(setup) = setup {
                self.extend_hold(now);
                return Some((setup, SwitchReason::Backlog));
            }
        }
        self.is_best = to == index;
        if !self.learner.is_off() {
            let trial = self.learn(signals, bounds, index);
            if trial.is_some() || self.learner.has_trial() {
                return trial;
            }
        }
        let all = self.envelope.curves().all();
        let (best, from) = (&all[to], &all[index]);
        if self.is_best || now.since(signals.current_since) < self.dwell {
            return None;
        }
        let must_hold = self.is_under_pressure || now < self.hold.0;
        if must_hold && best.max_load < from.max_load {
            return None;
        }
        let is_sure =
            [bounds.mean, bounds.low, bounds.high].iter().all(|load| self.is_better(to, index, *load, bounds.mean));
        is_sure.then_some((best.setup, SwitchReason::Better))
    }

    /// Holds the setup chosen for a backlog: twice as long as the last time if that was recent.
    fn extend_hold(&mut self, now: Time) {
        let (until, last) = self.hold;
        let again = now.since(until) < last;
        let span = if again { last * 2 } else { self.dwell * HOLD_DWELLS.0 }.min(self.dwell * HOLD_DWELLS.1);
        self.hold = (now + span, span);
    }

    /// Time at which a silence, or the end of a dwell, could change the decision.
    fn next_poll(&self, signals: &ThreadSignals) -> Time {
        let now = signals.now;
        let mut next = Time::NEVER;
        let mut at = |time: Time| {
            if time > now {
                next = next.min(time);
            }
        };
        if self.is_under_pressure {
            at(now + self.dwell);
        }
        if !self.is_best {
            at(signals.current_since + self.dwell);
            at(self.hold.0);
        }
        if self.lowest != signals.current
            && let Some(newest) = signals.arrivals.newest()
        {
            // Each check waits longer, so that an hour of silence costs a few dozen.
            let silent = now.since(newest);
            let below = self.lower_crossing.map_or(silent, |bend| self.detector.silence(bend.0 * MARGIN));
            at(newest + below.max(silent.scale(1.25)).max(self.dwell));
        }
        next
    }
}

impl ThreadingPolicy for Leeward {
    fn initial(&self) -> ThreadingSetup {
        self.lowest
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        if self.learner.is_on() {
            return self.envelope.curves().all().iter().map(|curve| curve.setup).collect();
        }
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Arrivals(POLL_ARRIVALS)
    }

    fn window(&self) -> usize {
        WINDOW_MAX
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        self.is_under_pressure = self.preferred.is_under_pressure(signals, self.target);
        let mut bounds = self.detector.update(&signals.arrivals, signals.now);
        if let Some(bounds) = &mut bounds
            && self.is_under_pressure
        {
            // Admission rejects demand, so the offered load counts, not the arrivals.
            let offered = signals.offered.0.min(f64::MAX);
            bounds.mean = bounds.mean.max(offered);
            bounds.high = bounds.high.max(offered);
            bounds.low = bounds.low.max(offered * SLACK);
        }
        if let Some(bounds) = &bounds {
            self.preferred.record_rate(Rate(bounds.mean));
        }
        let chosen = bounds.as_ref().and_then(|bounds| self.choose(signals, bounds));
        if let Some(bounds) = bounds.as_ref().filter(|_| self.learner.is_shadow()) {
            self.learned_best(bounds.mean);
        }
        self.timeout = self.next_poll(signals);
        let (setup, reason) = chosen?;
        self.preferred.prefer(signals, setup, reason)
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn gauges(&self) -> ThreadGauges {
        let mut gauges = self.preferred.gauges(self.envelope.curves(), self.tail);
        gauges.stale = self.learner.is_stale();
        let learned = self.learned.map(|(index, ..)| self.envelope.curves().all()[index].setup);
        gauges.shadow = learned.filter(|setup| *setup != gauges.current);
        gauges
    }
}
