//! The verdict on a claim from what all seeds say.

use crate::numbers::{median, round};
use crate::scenario::ClaimSpec;
use leeward_outcome::results::{Claim, Results, Verdict};

/// Holds a claim against results: the median over the seeds must lie within its bounds.
pub fn judge(spec: &ClaimSpec, results: &Results) -> Claim {
    let seeds = seeds(results);
    let evaluated: Vec<f64> = seeds.iter().filter_map(|seed| spec.measure.evaluate(results, *seed)).collect();
    let mut values: Vec<f64> = evaluated.iter().copied().filter(|value| value.is_finite()).collect();
    let (value, measured, verdict) = if values.is_empty() {
        let why = if evaluated.is_empty() { "not measured in this run" } else { "not a number (division by zero)" };
        (None, why.to_string(), Verdict::NotApplicable)
    } else {
        let value = round(median(&mut values), 6);
        let within = spec.min.is_none_or(|min| value >= min) && spec.max.is_none_or(|max| value <= max);
        let verdict = if within { Verdict::Reproduced } else { Verdict::NotReproduced };
        (Some(value), measured(value, &values, seeds.len(), &spec.unit), verdict)
    };
    Claim {
        id: spec.id.clone(),
        text: spec.text.clone(),
        paper: spec.paper.clone(),
        measured,
        value,
        accepted: accepted(spec),
        verdict,
        note: spec.note.clone(),
    }
}

fn seeds(results: &Results) -> Vec<u64> {
    let mut seeds: Vec<u64> = results.points.iter().map(|point| point.run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

/// `sorted` are the values of those of the `seeds` that gave one; a verdict that rests on some of them only says so.
fn measured(value: f64, sorted: &[f64], seeds: usize, unit: &str) -> String {
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return String::new() };
    let middle = with_unit(value, unit);
    let spread = if sorted.len() == 1 { middle } else { format!("{middle} ({}–{})", short(*least), short(*most)) };
    if sorted.len() == seeds { spread } else { format!("{spread}, {} of {seeds} seeds", sorted.len()) }
}

fn accepted(spec: &ClaimSpec) -> String {
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

/// About four significant digits, without zeros at the end.
fn short(value: f64) -> String {
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

    #[test]
    fn a_verdict_on_some_of_the_seeds_says_so() {
        assert_eq!(measured(2.0, &[1.0, 3.0], 2, "x"), "2x (1–3)");
        assert_eq!(measured(2.0, &[2.0], 3, "x"), "2x, 1 of 3 seeds");
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
