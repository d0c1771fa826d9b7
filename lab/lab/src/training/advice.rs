//! Advice from curves: setups by load, the best single setup, and the confidence of both.
//!
//! Does not contain the making of curves ([`super`]).

use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, CurvePoint, Curves, Envelope, Objective, TailPercentile};

/// Ratio to the best setup up to which a setup counts as equal; the policy's `gain` is the same.
const TIE_FACTOR: f64 = 1.05;
/// Part of a setup's sustained load for which it is advised, if that load is known well.
const MARGIN: f64 = 0.9;
/// Additional margin, because loads are rounded.
const ROUNDING_MARGIN: f64 = 1.001;
/// Number of loads in the table, from the lowest to the highest.
const ROWS: usize = 10;

/// Query for advice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceQuery {
    /// Objective of the tail latency.
    pub slo: Nanos,
    /// Percentile of the tail latency.
    pub tail: TailPercentile,
    /// Lowest load.
    pub min_load: Rate,
    /// Highest load.
    pub max_load: Rate,
}

/// Advice on setups.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Setups with the loads from which they are advised: the fewest that stay within 5 % of the
    /// best.
    pub steps: Vec<(Rate, ThreadingSetup)>,
    /// Best fixed setup: the one with the lowest maximum ratio to the best of each load; `None` if
    /// no setup sustains all loads.
    pub single: Option<SingleSetup>,
    /// Setup with the least CPU time that keeps the objective at all loads.
    pub cheapest: Option<SingleSetup>,
    /// Highest load of the table at which a setup keeps the objective.
    pub max_slo_load: Option<Rate>,
    /// Best and second-best setup by load.
    pub rows: Vec<AdviceRow>,
}

/// A setup for all loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleSetup {
    /// The setup.
    pub setup: ThreadingSetup,
    /// Maximum ratio of its tail to the lowest tail of any setup, over all loads.
    pub factor: f64,
    /// Ratio of its CPUs to the best setup's, at the lowest load.
    pub cpu: f64,
}

/// Advice for one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceRow {
    /// The load.
    pub load: Rate,
    /// Best setup; of several candidates the one that tolerates more load best.
    pub best: ThreadingSetup,
    /// Predicted tail of the best setup.
    pub tail: Nanos,
    /// CPUs that it needs.
    pub cpu: f64,
    /// Second-best setup with its predicted tail.
    pub second: Option<(ThreadingSetup, Nanos)>,
    /// Confidence in the order of the two.
    pub confidence: Confidence,
}

/// Confidence in the best setup of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The 95 % bounds of best and second best are disjoint.
    Sure,
    /// The bounds overlap, and the difference is within 5 %: both are good.
    Tie,
    /// The bounds overlap, and the difference is larger: measure for longer.
    Unsure,
    /// No setup sustains the load; the row names the strongest, with its tail at its own end.
    Beyond,
}

impl Confidence {
    /// Text for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Confidence::Sure => "sure",
            Confidence::Tie => "tie",
            Confidence::Unsure => "unsure",
            Confidence::Beyond => "beyond",
        }
    }
}

/// Loads to train for advice on the given loads.
///
/// Setups are advised only for a part of their sustained load. So the training must go above the
/// highest load: at the last point of all curves no setup would be eligible.
pub fn training_range((lowest, highest): (Rate, Rate)) -> (Rate, Rate) {
    (lowest, Rate(highest.0 / MARGIN * ROUNDING_MARGIN))
}

/// Highest load with advice from curves up to `highest`.
pub fn max_advised_load(highest: Rate) -> Rate {
    Rate(highest.0 * MARGIN)
}

/// The advice that these curves give.
pub fn advise(curves: &Curves, question: &AdviceQuery) -> Advice {
    let envelope = Envelope::new(with_sure_ends(curves), Objective::Latency(question.tail), MARGIN);
    let loads = loads(question);
    let rows: Vec<AdviceRow> = loads.iter().map(|load| row(curves, &envelope, question, *load)).collect();
    let kept = rows.iter().filter(|row| row.tail <= question.slo && is_sustained(curves, row));
    Advice {
        steps: steps(&envelope, question, &loads),
        single: best_single(&envelope, &loads),
        cheapest: cheapest_single(&envelope, question, &loads),
        max_slo_load: kept.map(|row| row.load).next_back(),
        rows,
    }
}

/// Curves whose sustained load is at most what is surely sustained.
///
/// Near its end a setup's tail rises with the load's distance from that end, so an end that is
/// known within a factor is advised only up to that factor below. [`MARGIN`] covers the first
/// tenth.
fn with_sure_ends(curves: &Curves) -> Curves {
    let shortened = |curve: &Curve| {
        let spread = nearest(curve, Rate(curve.max_load)).map_or(0.0, |point| point.spread);
        let part = (1.0 / (1.0 + spread) / MARGIN).min(1.0);
        Curve { max_load: (curve.max_load * part).max(curve.points[0].load), ..curve.clone() }
    };
    Curves::new(curves.all().iter().map(shortened).collect()).unwrap_or_else(|_| curves.clone())
}

fn is_sustained(curves: &Curves, row: &AdviceRow) -> bool {
    curves.get(row.best).is_some_and(|curve| row.load.0 <= curve.max_load)
}

fn loads(question: &AdviceQuery) -> Vec<Rate> {
    let (lowest, highest) = (question.min_load.0, question.max_load.0.max(question.min_load.0));
    let step = |row: usize| lowest * (highest / lowest).powf(row as f64 / (ROWS - 1) as f64);
    let mut loads: Vec<Rate> = (0..ROWS).map(|row| Rate(step(row))).collect();
    loads.dedup();
    loads
}

/// Setups that may be the best at this load, the one with the lowest tail first: their bounds
/// overlap its bounds.
///
/// If that setup keeps the objective, all others must, too.
fn contenders<'a>(envelope: &'a Envelope, question: &AdviceQuery, load: Rate) -> Vec<&'a Curve> {
    let best = envelope.best(load);
    let others = envelope.curves().all().iter().filter(|curve| curve.setup != best.setup);
    let meets = |curve: &&Curve| {
        let tail = |curve: &Curve| envelope.score(curve, load).map(|tail| Nanos(tail as u64));
        let (Some(tail), Some(other)) = (tail(best), tail(curve)) else { return false };
        let keeps = other <= question.slo || tail > question.slo;
        keeps && confidence(best, curve, tail, other, load) != Confidence::Sure
    };
    std::iter::once(best).chain(others.filter(meets)).collect()
}

/// Geometric mean of the tails at this load and at one higher by the margin.
///
/// The serving machine never equals the measured one exactly; which of two setups tolerates that
/// shows at the higher load.
fn robust_tail(envelope: &Envelope, question: &AdviceQuery, curve: &Curve, load: Rate) -> Option<f64> {
    let further = Rate((load.0 / MARGIN).min(curve.max_load));
    let then = curve.latency(question.tail, further)?;
    Some((envelope.score(curve, load)?.max(1.0) * then.0.max(1) as f64).sqrt())
}

/// Setups that may be the best at a load, each with its robust tail; empty if no setup sustains the
/// load.
struct LoadCandidates<'a> {
    load: Rate,
    candidates: Vec<(&'a Curve, f64)>,
}

impl<'a> LoadCandidates<'a> {
    fn new(envelope: &'a Envelope, question: &AdviceQuery, load: Rate) -> Self {
        let all = contenders(envelope, question, load).into_iter();
        let all = all.filter_map(|curve| Some((curve, robust_tail(envelope, question, curve, load)?))).collect();
        LoadCandidates { load, candidates: all }
    }

    /// The best setup, with its robust tail.
    fn choice(&self) -> Option<(&'a Curve, f64)> {
        self.candidates.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Ratio of a setup to the best: by the robust tail among the candidates, by the tail
    /// otherwise.
    fn regret(&self, envelope: &Envelope, curve: &Curve) -> Option<f64> {
        match self.candidates.iter().find(|(rated, _)| rated.setup == curve.setup) {
            Some((_, outlook)) => Some(outlook / self.choice()?.1),
            None => tail_ratio(envelope, curve, self.load),
        }
    }
}

/// The best setup at this load; beyond all sustained loads the strongest.
fn choice<'a>(envelope: &'a Envelope, question: &AdviceQuery, load: Rate) -> &'a Curve {
    LoadCandidates::new(envelope, question, load).choice().map_or_else(|| envelope.best(load), |(curve, _)| curve)
}

/// Ratio of the tail to the best setup's at this load; `None` if the setup is not eligible.
fn tail_ratio(envelope: &Envelope, curve: &Curve, load: Rate) -> Option<f64> {
    let best = envelope.best(load);
    Some(envelope.score(curve, load)? / envelope.score(best, load)?.max(1.0))
}

/// Advice for one load. `curves`: as measured.
fn row(curves: &Curves, envelope: &Envelope, question: &AdviceQuery, load: Rate) -> AdviceRow {
    let best = choice(envelope, question, load);
    let best = curves.get(best.setup).unwrap_or(best);
    let tail = |curve: &Curve| curve.latency(question.tail, Rate(load.0.min(curve.max_load))).unwrap_or(Nanos::MAX);
    let is_other = |curve: &&Curve| curve.setup != best.setup && load.0 <= curve.max_load * MARGIN;
    let others = curves.all().iter().filter(is_other);
    let second = others.min_by_key(|curve| tail(curve));
    let confidence = match second {
        _ if load.0 > best.max_load => Confidence::Beyond,
        Some(second) => confidence(best, second, tail(best), tail(second), load),
        None => Confidence::Sure,
    };
    AdviceRow {
        load,
        best: best.setup,
        tail: tail(best),
        cpu: best.cpu(Rate(load.0.min(best.max_load))).unwrap_or(0.0),
        second: second.map(|curve| (curve.setup, tail(curve))),
        confidence,
    }
}

fn confidence(best: &Curve, second: &Curve, tail: Nanos, other: Nanos, load: Rate) -> Confidence {
    let spread = |curve: &Curve| nearest(curve, load).map_or(0.0, |knot| knot.spread);
    let high = tail.0 as f64 * (1.0 + spread(best));
    let low = other.0 as f64 / (1.0 + spread(second));
    let close = tail.0.max(other.0) as f64 <= tail.0.min(other.0) as f64 * TIE_FACTOR;
    match (high < low, close) {
        (true, _) => Confidence::Sure,
        (false, true) => Confidence::Tie,
        (false, false) => Confidence::Unsure,
    }
}

fn nearest(curve: &Curve, load: Rate) -> Option<&CurvePoint> {
    curve.points.iter().min_by(|a, b| (a.load - load.0).abs().total_cmp(&(b.load - load.0).abs()))
}

/// Steps from the lowest load upwards: each setup is kept while it is within 5 % of the best. Of
/// several setups the one that stays within longest is chosen.
fn steps(envelope: &Envelope, question: &AdviceQuery, loads: &[Rate]) -> Vec<(Rate, ThreadingSetup)> {
    let (Some(first), Some(last)) = (loads.first(), loads.last()) else { return Vec::new() };
    let bends = envelope.intervals().map(|(from, _)| from.0);
    let mut points: Vec<f64> =
        loads.iter().map(|load| load.0).chain(bends).filter(|load| (first.0..=last.0).contains(load)).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    let points: Vec<LoadCandidates> =
        points.into_iter().map(|load| LoadCandidates::new(envelope, question, Rate(load))).collect();
    let mut steps: Vec<(Rate, ThreadingSetup)> = Vec::new();
    let mut at = 0;
    while at < points.len() {
        let lasts = |curve: &Curve| {
            let close =
                |point: &&LoadCandidates| point.regret(envelope, curve).is_some_and(|regret| regret <= TIE_FACTOR);
            points[at..].iter().take_while(close).count()
        };
        let longest = envelope
            .curves()
            .all()
            .iter()
            .map(|curve| (lasts(curve), curve))
            .reduce(|a, b| if b.0 > a.0 { b } else { a });
        // Beyond all sustained loads the strongest setup is the best.
        let (count, curve) =
            longest.filter(|(count, _)| *count > 0).unwrap_or_else(|| (1, envelope.best(points[at].load)));
        if steps.last().is_none_or(|(_, setup)| *setup != curve.setup) {
            // The previous setup is good up to its last point.
            steps.push((points[at.saturating_sub(1)].load, curve.setup));
        }
        at += count;
    }
    steps
}

/// Maximum ratio of a setup's tail to the best over all loads; `None` if it does not sustain a load
/// that another setup does.
fn max_tail_ratio(envelope: &Envelope, curve: &Curve, loads: &[Rate]) -> Option<f64> {
    let sustained = loads.iter().filter(|load| envelope.is_eligible(envelope.best(**load), **load));
    sustained
        .map(|load| tail_ratio(envelope, curve, *load))
        .try_fold(1.0, |worst, factor| Some(f64::max(worst, factor?)))
}

fn single_setup(envelope: &Envelope, curve: &Curve, factor: f64, loads: &[Rate]) -> SingleSetup {
    let first = loads.first().copied().unwrap_or(Rate(0.0));
    let best = envelope.best(first).cpu(first).unwrap_or(0.0);
    let cpu = curve.cpu(first).unwrap_or(0.0) / best.max(1e-3);
    SingleSetup { setup: curve.setup, factor, cpu }
}

fn best_single(envelope: &Envelope, loads: &[Rate]) -> Option<SingleSetup> {
    let curves = envelope.curves().all().iter();
    let rated = curves.filter_map(|curve| Some((max_tail_ratio(envelope, curve, loads)?, curve)));
    let (factor, curve) = rated.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(single_setup(envelope, curve, factor, loads))
}

fn cheapest_single(envelope: &Envelope, question: &AdviceQuery, loads: &[Rate]) -> Option<SingleSetup> {
    let keeps = |curve: &&Curve| {
        let within = |load: &Rate| curve.latency(question.tail, *load).is_some_and(|tail| tail <= question.slo);
        loads.iter().all(within)
    };
    let first = loads.first().copied()?;
    let cpu = |curve: &&Curve| curve.cpu(first).unwrap_or(f64::MAX);
    let curve = envelope.curves().all().iter().filter(keeps).min_by(|a, b| cpu(a).total_cmp(&cpu(b)))?;
    Some(single_setup(envelope, curve, max_tail_ratio(envelope, curve, loads)?, loads))
}
