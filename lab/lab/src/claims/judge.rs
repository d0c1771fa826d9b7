//! The verdict on a claim over all seeds: reproduced if the median's interval lies within the
//! accepted values, not reproduced if it lies outside, undecided if it reaches across a bound.

use std::collections::BTreeSet;

use super::interval::{bootstrap, median_with_infinities};
use crate::numbers::round;
use crate::scenario::ClaimSpec;
use leeward_outcome::results::{Claim, PointRow, Results, Settling, Verdict};

/// Judges a claim by the results.
pub fn judge(spec: &ClaimSpec, results: &Results) -> Claim {
    let seeds = seeds(results);
    let evaluated: Vec<f64> = seeds.iter().filter_map(|seed| spec.measure.evaluate(results, *seed)).collect();
    let mut values: Vec<f64> = evaluated.iter().copied().filter(|value| !value.is_nan()).collect();
    let claim = Claim {
        id: spec.id.clone(),
        text: spec.text.clone(),
        paper: spec.paper.clone(),
        measured: String::new(),
        value: None,
        interval: None,
        accepted: describe_accepted(spec),
        verdict: Verdict::NotApplicable,
        note: spec.note.clone(),
        settling: Vec::new(),
        late: Vec::new(),
    };
    if values.is_empty() {
        let why = if evaluated.is_empty() { "not measured in this run" } else { "not a number (zero by zero)" };
        return Claim { measured: why.into(), ..claim };
    }
    let interval = bootstrap(&values);
    let value = median_with_infinities(&mut values);
    let runs: Vec<_> = seeds.iter().flat_map(|seed| spec.measure.runs(results, *seed)).collect();
    let (settling, late) = (settling(&runs, seeds.len()), late(&runs));
    let is_measured = values.len() == seeds.len() && late.is_empty() && settling.iter().all(|side| side.settled);
    // Seeds without a number, and runs that still change or had a late load, could have any value.
    let verdict = if is_measured { verdict(spec, interval) } else { Verdict::Undecided };
    let rounded = |value: f64| value.is_finite().then(|| round(value, 6));
    Claim {
        measured: describe_measured(value, &values, interval, seeds.len(), &spec.unit),
        value: rounded(value),
        interval: (values.len() > 1).then(|| rounded(interval.0).zip(rounded(interval.1))).flatten(),
        verdict,
        settling,
        late,
        ..claim
    }
}

/// Seeds of which one may have a run that drifts. The test of a run takes some stationary runs for
/// drifting ones: with five seeds one such run is likely by chance, two are not. All values count.
const SEEDS_PER_DRIFT: usize = 5;

/// When each variant that the claim compares had settled: the latest of its runs in `seeds` seeds.
fn settling(runs: &[(&PointRow, Option<bool>)], seeds: usize) -> Vec<Settling> {
    let mut sides: Vec<(Settling, BTreeSet<u64>)> = Vec::new();
    for (point, settled) in runs {
        let (Some(settled), Some(after_s)) = (*settled, point.settled_s) else { continue };
        let label = &point.run.label;
        let index = sides.iter().position(|(side, _)| side.label == *label).unwrap_or_else(|| {
            let side = Settling { label: label.clone(), settled: true, drifting: 0, after_s };
            sides.push((side, BTreeSet::new()));
            sides.len() - 1
        });
        let (side, drifting) = &mut sides[index];
        side.after_s = side.after_s.max(after_s);
        if !settled {
            drifting.insert(point.run.seed);
        }
    }
    let finish = |(side, drifting): (Settling, BTreeSet<u64>)| Settling {
        settled: drifting.len() <= seeds / SEEDS_PER_DRIFT,
        drifting: drifting.len() as u64,
        ..side
    };
    sides.into_iter().map(finish).collect()
}

/// Variants of the claim with a run whose load was late.
fn late(runs: &[(&PointRow, Option<bool>)]) -> Vec<String> {
    let late = runs.iter().filter(|(point, _)| point.late_us.is_some());
    let mut labels: Vec<String> = late.map(|(point, _)| point.run.label.clone()).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

fn verdict(spec: &ClaimSpec, (low, high): (f64, f64)) -> Verdict {
    // Results have six decimals, so a smaller difference is not beyond a bound.
    let (low, high) = (round_finite(low), round_finite(high));
    let (min, max) = (spec.min.unwrap_or(f64::NEG_INFINITY), spec.max.unwrap_or(f64::INFINITY));
    if min <= low && high <= max {
        Verdict::Reproduced
    } else if high < min || max < low {
        Verdict::NotReproduced
    } else {
        Verdict::Undecided
    }
}

fn round_finite(value: f64) -> f64 {
    if value.is_finite() { round(value, 6) } else { value }
}

fn seeds(results: &Results) -> Vec<u64> {
    let mut seeds: Vec<u64> = results.points.iter().map(|point| point.run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

/// Text of a measurement. `values` are those of the seeds with a value; the text states their
/// number if some of the `seeds` have none.
fn describe_measured(value: f64, values: &[f64], (low, high): (f64, f64), seeds: usize, unit: &str) -> String {
    let middle = with_unit(value, unit);
    let spread = if values.len() == 1 { middle } else { format!("{middle} ({}–{})", short(low), short(high)) };
    if values.len() == seeds { spread } else { format!("{spread}, {} of {seeds} seeds", values.len()) }
}

fn describe_accepted(spec: &ClaimSpec) -> String {
    match (spec.min, spec.max) {
        (Some(min), Some(max)) => format!("from {} to {}", short(min), with_unit(max, &spec.unit)),
        (Some(min), None) => format!("at least {}", with_unit(min, &spec.unit)),
        (None, Some(max)) => format!("at most {}", with_unit(max, &spec.unit)),
        (None, None) => "anything".into(),
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => short(value),
        "x" | "%" => format!("{}{unit}", short(value)),
        _ => format!("{} {unit}", short(value)),
    }
}

/// Formats about four significant digits, without trailing zeros.
fn short(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "-∞".into() };
    }
    let decimals = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_outcome::results::RunKey;

    #[test]
    fn one_drifting_seed_of_five_is_chance_and_two_are_not() {
        let point = |seed: u64| PointRow {
            run: RunKey::new("seda", "seda", seed),
            settled_s: Some(seed as f64),
            ..PointRow::default()
        };
        let points: Vec<PointRow> = (1..=5).map(point).collect();
        let judge = |drifting: &[u64], count: u64| {
            let used = points.iter().filter(|point| point.run.seed <= count);
            let runs: Vec<_> = used.map(|point| (point, Some(!drifting.contains(&point.run.seed)))).collect();
            // A claim may use a run several times.
            let twice = [runs.clone(), runs].concat();
            settling(&twice, count as usize).remove(0)
        };
        let one = judge(&[2], 5);
        assert_eq!((one.settled, one.drifting, one.after_s), (true, 1, 5.0));
        assert!(!judge(&[2, 5], 5).settled);
        assert!(!judge(&[2], 4).settled, "fewer seeds tell nothing about chance");
        assert!(judge(&[], 1).settled);
    }

    #[test]
    fn a_partial_verdict_states_its_number_of_seeds() {
        assert_eq!(describe_measured(2.0, &[1.0, 3.0], (1.0, 3.0), 2, "x"), "2x (1–3)");
        assert_eq!(describe_measured(2.0, &[2.0], (2.0, 2.0), 3, "x"), "2x, 1 of 3 seeds");
        assert_eq!(describe_measured(f64::INFINITY, &[9.0, f64::INFINITY], (9.0, f64::INFINITY), 2, "x"), "∞x (9–∞)");
    }

    #[test]
    fn numbers_are_written_short() {
        for (value, text) in
            [(1.0, "1"), (1.0567, "1.057"), (801_234.5, "801234"), (0.0, "0"), (-0.00001, "0"), (212.34, "212.3")]
        {
            assert_eq!(short(value), text);
        }
    }
}
