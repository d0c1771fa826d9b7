//! Advice from curves: which setups for which loads, which one alone, and how sure that is. How curves are made is the rest of
//! [`super`]'s.

use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, CurvePoint, Curves, Envelope, Objective, TailPercentile};

/// A setup within this of the best is as good: what the policy's `gain` is, too.
const TIE_FACTOR: f64 = 1.05;
/// Part of what a setup sustains that it is advised for.
const MARGIN: f64 = 0.9;
/// A little more than that: loads are rounded.
const ROUNDING_MARGIN: f64 = 1.001;
/// Loads of the table, from the lowest to the highest.
const ROWS: usize = 10;

/// Question to be advised on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceQuery {
    /// Tail latency that requests may have.
    pub slo: Nanos,
    /// Latency that is meant.
    pub tail: TailPercentile,
    /// Lowest load.
    pub min_load: Rate,
    /// Highest load.
    pub max_load: Rate,
}

/// Advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Setups and the loads from which on they are advised: as few as stay within 5 % of the best.
    pub steps: Vec<(Rate, ThreadingSetup)>,
    /// The one setup to have if it may never change: the least factor over the best of each load; `None` if none sustains all loads.
    pub single: Option<SingleSetup>,
    /// The setup that needs the least CPU within the objective at all loads.
    pub cheapest: Option<SingleSetup>,
    /// Highest load of the table at which some setup keeps the objective.
    pub max_slo_load: Option<Rate>,
    /// Best and second best by load.
    pub rows: Vec<AdviceRow>,
}

/// A setup for all loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleSetup {
    /// The setup.
    pub setup: ThreadingSetup,
    /// Its tail over the least of any setup, at the load where that is most.
    pub factor: f64,
    /// Its CPUs over those of the best setup, at the lowest load.
    pub cpu: f64,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceRow {
    /// The load.
    pub load: Rate,
    /// The best setup; of several that may be it, the one that bears more load best.
    pub best: ThreadingSetup,
    /// Its predicted tail.
    pub tail: Nanos,
    /// CPUs that it needs.
    pub cpu: f64,
    /// The best of the others with its predicted tail.
    pub second: Option<(ThreadingSetup, Nanos)>,
    /// How sure the order of the two is.
    pub confidence: Confidence,
}

/// How sure the best setup of a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The 95-% bounds of best and second best are apart.
    Sure,
    /// Their bounds meet, and the difference is within 5 %: either will do.
    Tie,
    /// Their bounds meet, and the difference is more: measure for longer.
    Unsure,
}

impl Confidence {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Confidence::Sure => "sure",
            Confidence::Tie => "tie",
            Confidence::Unsure => "unsure",
        }
    }
}

/// Loads to train for an advice on loads between these. Setups are advised for a part of what they are known to sustain, so that those which sustain the
/// highest load have to be measured above it: at their last knot none would be eligible, and the advice no choice.
pub fn training_range((lowest, highest): (Rate, Rate)) -> (Rate, Rate) {
    (lowest, Rate(highest.0 / MARGIN * ROUNDING_MARGIN))
}

/// Loads that curves up to this one give an advice on.
pub fn max_advised_load(highest: Rate) -> Rate {
    Rate(highest.0 * MARGIN)
}

/// The advice that these curves give.
pub fn advise(curves: &Curves, question: &AdviceQuery) -> Advice {
    let envelope = Envelope::new(curves.clone(), Objective::Latency(question.tail), MARGIN);
    let loads = loads(question);
    let rows: Vec<AdviceRow> = loads.iter().map(|load| row(&envelope, question, *load)).collect();
    let kept = rows.iter().filter(|row| row.tail <= question.slo && is_sustained(curves, row));
    Advice {
        steps: steps(&envelope, question, &loads),
        single: best_single(&envelope, &loads),
        cheapest: cheapest_single(&envelope, question, &loads),
        max_slo_load: kept.map(|row| row.load).next_back(),
        rows,
    }
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

/// Setups that may be the best at this load, the one of least tail first: their bounds meet its bounds. Where that one keeps the objective, they do.
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

/// Tail at this load and at one that is more by the margin, weighed alike: the machine that serves is never quite the one that was measured, and which of
/// two setups bears that is seen where there is more to do.
fn robust_tail(envelope: &Envelope, question: &AdviceQuery, curve: &Curve, load: Rate) -> Option<f64> {
    let further = Rate((load.0 / MARGIN).min(curve.max_load));
    let then = curve.latency(question.tail, further)?;
    Some((envelope.score(curve, load)?.max(1.0) * then.0.max(1) as f64).sqrt())
}

/// Setups that may be the best at a load, each with its outlook; none where nobody sustains the load.
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

    /// The setup to have, and its outlook.
    fn choice(&self) -> Option<(&'a Curve, f64)> {
        self.candidates.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much worse than the choice a setup is: among those that may be the best by its outlook, and else by its tail.
    fn regret(&self, envelope: &Envelope, curve: &Curve) -> Option<f64> {
        match self.candidates.iter().find(|(rated, _)| rated.setup == curve.setup) {
            Some((_, outlook)) => Some(outlook / self.choice()?.1),
            None => tail_ratio(envelope, curve, self.load),
        }
    }
}

/// The setup to have at this load; beyond what anybody sustains the strongest.
fn choice<'a>(envelope: &'a Envelope, question: &AdviceQuery, load: Rate) -> &'a Curve {
    LoadCandidates::new(envelope, question, load).choice().map_or_else(|| envelope.best(load), |(curve, _)| curve)
}

/// Tail over the best's at this load; `None` where it is not eligible.
fn tail_ratio(envelope: &Envelope, curve: &Curve, load: Rate) -> Option<f64> {
    let best = envelope.best(load);
    Some(envelope.score(curve, load)? / envelope.score(best, load)?.max(1.0))
}

fn row(envelope: &Envelope, question: &AdviceQuery, load: Rate) -> AdviceRow {
    let best = choice(envelope, question, load);
    let tail = |curve: &Curve| curve.latency(question.tail, Rate(load.0.min(curve.max_load))).unwrap_or(Nanos::MAX);
    let others =
        envelope.curves().all().iter().filter(|curve| curve.setup != best.setup && envelope.is_eligible(curve, load));
    let second = others.min_by_key(|curve| tail(curve));
    let confidence = second.map_or(Confidence::Sure, |second| confidence(best, second, tail(best), tail(second), load));
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

/// From the lowest load upwards, each setup for as long as it is within 5 % of the best: of those that begin there, the one that stays so
/// longest.
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
        // Beyond what any sustains the strongest is the best, and close to nothing.
        let (count, curve) =
            longest.filter(|(count, _)| *count > 0).unwrap_or_else(|| (1, envelope.best(points[at].load)));
        if steps.last().is_none_or(|(_, setup)| *setup != curve.setup) {
            // The one before is good up to its last point.
            steps.push((points[at.saturating_sub(1)].load, curve.setup));
        }
        at += count;
    }
    steps
}

/// The greatest factor of a setup over all loads; `None` if it does not sustain one that another does.
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
