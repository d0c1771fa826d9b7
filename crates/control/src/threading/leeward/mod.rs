//! Leeward's own policy: it changes the setup when the load is surely where another one is better, and at once when the load is surely more
//! than the setup sustains. How sure it is of a load: [`detect`].

mod detect;

use super::curves::{Curve, Envelope, Objective, Tail};
use super::policy::{Pace, PolicySpec, Reason, ThreadEnvironment, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::setup::Threading;
use super::window::WINDOW_MAX;
use super::wish::{FANOUT, Wish, of_fanout};
use crate::params::{Kind, ParamError, ParamSpec, Params};
use crate::units::{Nanos, Rate, Time};
use detect::{Bounds, Detector};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "leeward",
    summary: "the setup of least predicted tail or CPU, changed when the load is surely another",
    source: "",
    params: &[
        ParamSpec {
            name: "objective",
            kind: Kind::Choice(&["latency", "cpu"]),
            default: "latency",
            doc: "least predicted tail, or least CPU of those whose predicted tail is within 0.8 of the SLO",
            tune: &[],
        },
        ParamSpec {
            name: "tail",
            kind: Kind::Choice(&["p99", "p999"]),
            default: "p99",
            doc: "which percentile is the tail",
            tune: &[],
        },
        ParamSpec {
            name: "gain",
            kind: Kind::Number { min: 0.0, max: 10.0 },
            default: "5%",
            doc: "by how much another setup must be better",
            tune: &["2%", "5%", "10%"],
        },
        ParamSpec {
            name: "error",
            kind: Kind::Number { min: 1e-9, max: 0.1 },
            default: "0.0001",
            doc: "how often a bound of the load may be wrong, per decision",
            tune: &["0.00001", "0.0001", "0.001", "0.01"],
        },
        ParamSpec {
            name: "dwell",
            kind: Kind::SPAN,
            default: "20ms, or ten times what a switch costs",
            doc: "how long a setup is kept that sustains the load",
            tune: &["5ms", "20ms", "100ms"],
        },
        FANOUT,
    ],
    build: |params, environment| Ok(Box::new(Leeward::new(params, environment)?)),
};

/// Part of what a setup sustains that it is given: beyond, queues grow for long before they end.
const MARGIN: f64 = 0.9;
/// Part of the objective that a setup chosen for its CPU may be predicted to need.
const SLACK: f64 = 0.8;
/// Arrivals between two questions. Bounds move little in less.
const EVERY: u16 = 4;
/// For how many dwells a setup stays that was chosen for a backlog, at first and at most: each backlog soon after the last doubles it.
const HELD: (u64, u64) = (5, 1_000);

/// See the module.
#[derive(Clone, Debug)]
pub struct Leeward {
    envelope: Envelope,
    tail: Tail,
    /// The best setup without any load.
    lowest: Threading,
    detector: Detector,
    gain: f64,
    dwell: Nanos,
    target: Nanos,
    /// Age of the oldest waiting request that is a backlog.
    backlog: Nanos,
    /// Until when nothing is left again that a backlog has made it choose, and for how long that was.
    held: (Time, Nanos),
    /// Place of the current setup's curve.
    place: Option<(Threading, usize)>,
    /// The greatest load below the last estimate at which another setup than the best there is better.
    bend: Option<Rate>,
    /// The current setup was the best for the last estimate.
    is_best: bool,
    /// Requests are dropped or wait for too long.
    pressed: bool,
    wish: Wish,
    timeout: Time,
}

impl Leeward {
    fn new(params: &Params, environment: &ThreadEnvironment) -> Result<Self, ParamError> {
        let curves = of_fanout("leeward", params, environment.curves.as_deref())?;
        let tail = if params.choice("tail", "p99") == "p99" { Tail::P99 } else { Tail::P999 };
        let objective = match (params.choice("objective", "latency"), environment.slo) {
            ("latency", _) => Objective::Latency(tail),
            (_, Some(slo)) => Objective::Cpu(tail, slo.scale(SLACK)),
            (_, None) => return Err(ParamError::Conflict("`objective = \"cpu\"` needs an SLO".into())),
        };
        let envelope = Envelope::new(curves, objective, MARGIN);
        let dwell = params.duration("dwell", Nanos::from_millis(20).max(environment.switch * 10));
        let lowest = envelope.best(Rate(0.0)).setup;
        Ok(Leeward {
            envelope,
            tail,
            lowest,
            detector: Detector::new(params.number("error", 1e-4)),
            gain: params.number("gain", 0.05),
            dwell,
            target: environment.target,
            backlog: environment.slo.map_or(Nanos::MAX, |slo| slo / 2),
            held: (Time::ZERO, Nanos::ZERO),
            place: None,
            bend: None,
            is_best: true,
            pressed: false,
            wish: Wish::new(lowest),
            timeout: Time::NEVER,
        })
    }

    /// Whether `to` is better than `from` at this load, by the gain.
    fn is_better(&self, to: &Curve, from: &Curve, load: f64) -> bool {
        let score = |curve| self.envelope.score(curve, Rate(load));
        match (score(to), score(from)) {
            (Some(to), Some(from)) => from > to * (1.0 + self.gain),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => to.sustains > from.sustains,
        }
    }

    /// Setup for these bounds, and why it should be another than the current one.
    fn choose(&mut self, signals: &ThreadSignals, bounds: &Bounds) -> Option<(Threading, Reason)> {
        let now = signals.now;
        let (best, bend) = self.envelope.best_and_bend(Rate(bounds.mean));
        self.bend = bend;
        // Looked for only when it has changed.
        if self.place.is_none_or(|(setup, _)| setup != signals.current) {
            self.place = self.envelope.curves().place(signals.current).map(|place| (signals.current, place));
        }
        let Some((_, place)) = self.place else { return Some((best.setup, Reason::Better)) };
        let from = &self.envelope.curves().all()[place];
        if bounds.low > from.sustains * MARGIN && best.sustains > from.sustains {
            return Some((best.setup, Reason::Unsustained));
        }
        if signals.oldest > self.backlog && now >= self.held.0 {
            let stronger = |(_, curve): (Rate, &Curve)| (curve.sustains > from.sustains).then_some(curve.setup);
            let setup = self.envelope.intervals().find_map(stronger);
            if let Some(setup) = setup {
                self.hold(now);
                return Some((setup, Reason::Backlog));
            }
        }
        self.is_best = best.setup == from.setup;
        if self.is_best || now.since(signals.since) < self.dwell {
            return None;
        }
        let waits = self.pressed || now < self.held.0;
        if waits && best.sustains < from.sustains {
            return None;
        }
        let surely = [bounds.mean, bounds.low, bounds.high].iter().all(|load| self.is_better(best, from, *load));
        surely.then_some((best.setup, Reason::Better))
    }

    /// Keeps what a backlog has made it choose: for twice as long as the last time, if that is not long ago.
    fn hold(&mut self, now: Time) {
        let (until, last) = self.held;
        let again = now.since(until) < last;
        let span = if again { last * 2 } else { self.dwell * HELD.0 }.min(self.dwell * HELD.1);
        self.held = (now + span, span);
    }

    /// When silence, or the end of a dwell, would be news.
    fn next(&self, signals: &ThreadSignals) -> Time {
        let now = signals.now;
        let mut next = Time::NEVER;
        let mut at = |time: Time| {
            if time > now {
                next = next.min(time);
            }
        };
        if self.pressed {
            at(now + self.dwell);
        }
        if !self.is_best {
            at(signals.since + self.dwell);
            at(self.held.0);
        }
        if self.lowest != signals.current
            && let Some(newest) = signals.arrivals.newest()
        {
            // Each look waits for longer, so that an hour of silence costs a few dozen.
            let silent = now.since(newest);
            let below = self.bend.map_or(silent, |bend| self.detector.silence(bend.0 * MARGIN));
            at(newest + below.max(silent.scale(1.25)).max(self.dwell));
        }
        next
    }
}

impl ThreadingPolicy for Leeward {
    fn initial(&self) -> Threading {
        self.lowest
    }

    fn choices(&self) -> Vec<Threading> {
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn pace(&self) -> Pace {
        Pace::Arrivals(EVERY)
    }

    fn window(&self) -> usize {
        WINDOW_MAX
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<Threading> {
        if !self.wish.advances(signals.now) {
            return None;
        }
        self.pressed = self.wish.is_pressed(signals, self.target);
        let mut bounds = self.detector.update(&signals.arrivals, signals.now);
        if let Some(bounds) = &mut bounds
            && self.pressed
        {
            // Admission keeps demand away: what is offered counts, not what arrives.
            let offered = signals.offered.0.min(f64::MAX);
            bounds.mean = bounds.mean.max(offered);
            bounds.high = bounds.high.max(offered);
            bounds.low = bounds.low.max(offered * SLACK);
        }
        if let Some(bounds) = &bounds {
            self.wish.note(Rate(bounds.mean));
        }
        let chosen = bounds.as_ref().and_then(|bounds| self.choose(signals, bounds));
        self.timeout = self.next(signals);
        let (setup, reason) = chosen?;
        self.wish.want(signals, setup, reason)
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn gauges(&self) -> ThreadGauges {
        self.wish.gauges(self.envelope.curves(), self.tail)
    }
}
