//! Random sets over all parameters of an algorithm: a search with the same cost for every
//! controller.
//!
//! Does not contain the choice of the best set.

use super::{Params, with_param};
use leeward_core::params::{ParamKind, ParamSpec, RawParam};
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, parse_duration, parse_number};
use leeward_sim::rng::{Purpose, Rng};

/// Of ten draws, the number in which a parameter without listed values keeps its default.
const KEEP_DEFAULT_TENTHS: u64 = 5;
/// Factor by which values reach beyond the ends of a list, and to either side of a default.
const LIST_STRETCH: f64 = 2.0;
const DEFAULT_STRETCH: f64 = 4.0;

/// Range of a parameter, drawn uniformly by logarithm.
#[derive(Clone, Debug, PartialEq)]
enum ParamRange {
    Span(Nanos, Nanos),
    Number(f64, f64),
}

struct Knob {
    name: &'static str,
    range: ParamRange,
    is_listed: bool,
    /// Default value, as text.
    default: &'static str,
}

/// Draws sets of parameters.
pub(super) struct ParamSampler {
    knobs: Vec<Knob>,
    rng: Rng,
}

impl ParamSampler {
    /// Samples all durations and numbers of `algorithm` that have a starting value; `scale` scales
    /// listed durations to the objective.
    pub(super) fn new(algorithm: &Algorithm, scale: f64, seed: u64) -> Self {
        let knobs = algorithm.params.iter().filter_map(|spec| {
            let is_listed = !spec.tuning_values.is_empty();
            param_range(spec, if is_listed { scale } else { 1.0 }).map(|range| Knob {
                name: spec.name,
                range,
                is_listed,
                default: spec.default,
            })
        });
        ParamSampler { knobs: knobs.collect(), rng: Rng::new(seed, Purpose::Clients) }
    }

    /// Draws the next set; other values are those of `from`.
    pub(super) fn sample(&mut self, from: &Params) -> Params {
        let mut params = from.clone();
        for Knob { name, range, is_listed, .. } in &self.knobs {
            // Drawn in every case, so that one parameter's draws don't depend on another's.
            let (unit, ten) = (self.rng.unit(), self.rng.below(10));
            if *is_listed || ten >= KEEP_DEFAULT_TENTHS {
                params = with_param(&params, name, &value(range, unit));
            }
        }
        params
    }

    /// Draws a set around `from`: each parameter moves by up to `reach` of its range, by logarithm.
    pub(super) fn near(&mut self, from: &Params, reach: f64) -> Params {
        let mut params = from.clone();
        for Knob { name, range, default, .. } in &self.knobs {
            let unit = self.rng.unit();
            let current = from.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            let Some(place) = range.place(current.unwrap_or(&RawParam::Text((*default).into()))) else { continue };
            let next = (place + reach * (2.0 * unit - 1.0)).clamp(0.0, 1.0);
            params = with_param(&params, name, &value(range, next));
        }
        params
    }
}

impl ParamRange {
    /// Place of a value between the ends, 0 to 1 by logarithm; `None` if it has none, such as 0.
    fn place(&self, value: &RawParam) -> Option<f64> {
        let number = |value: &RawParam| match value {
            RawParam::Text(text) => parse_number(text).ok(),
            RawParam::Number(number) => Some(*number),
            RawParam::Integer(number) => Some(*number as f64),
            RawParam::Switch(_) => None,
        };
        let (low, high, value) = match (self, value) {
            (ParamRange::Span(low, high), RawParam::Text(text)) => {
                (low.0 as f64, high.0 as f64, parse_duration(text).ok()?.0 as f64)
            }
            (ParamRange::Span(..), _) => return None,
            (ParamRange::Number(low, high), value) => (*low, *high, number(value)?),
        };
        let place = (value / low).ln() / (high / low).ln();
        place.is_finite().then(|| place.clamp(0.0, 1.0))
    }
}

fn param_range(spec: &ParamSpec, scale: f64) -> Option<ParamRange> {
    let beyond = if spec.tuning_values.is_empty() { DEFAULT_STRETCH } else { LIST_STRETCH };
    let values: Vec<&str> =
        if spec.tuning_values.is_empty() { vec![spec.default] } else { spec.tuning_values.to_vec() };
    match spec.kind {
        ParamKind::Duration { min, max } => {
            let spans: Vec<Nanos> = values.iter().filter_map(|text| parse_duration(text).ok()).collect();
            let (low, high) = (spans.iter().min()?.scale(scale / beyond), spans.iter().max()?.scale(scale * beyond));
            let range = (low.clamp(min, max), high.clamp(min, max));
            (range.0 > Nanos::ZERO && range.0 < range.1).then_some(ParamRange::Span(range.0, range.1))
        }
        ParamKind::Number { min, max } => {
            let numbers: Vec<f64> = values.iter().filter_map(|text| parse_number(text).ok()).collect();
            let low = numbers.iter().copied().fold(f64::INFINITY, f64::min) / beyond;
            let high = numbers.iter().copied().fold(0.0, f64::max) * beyond;
            let range = (low.max(min), high.min(max));
            (range.0 > 0.0 && range.0 < range.1 && range.1.is_finite()).then_some(ParamRange::Number(range.0, range.1))
        }
        ParamKind::Count { .. } | ParamKind::Choice(_) => None,
    }
}

/// Rounded to three digits, the precision of the search.
fn value(range: &ParamRange, unit: f64) -> RawParam {
    let between = |low: f64, high: f64| low * (high / low).powf(unit);
    let round = |number: f64| {
        let scale = 10f64.powf(2.0 - number.log10().floor());
        (number * scale).round() / scale
    };
    match range {
        ParamRange::Span(low, high) => {
            let span = Nanos(round(between(low.0 as f64, high.0 as f64)) as u64);
            RawParam::Text(span.clamp(*low, *high).to_string())
        }
        ParamRange::Number(low, high) => {
            let number = round(between(*low, *high)).clamp(*low, *high);
            RawParam::Text(crate::numbers::round(number, 9).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_range_and_all_parameters_vary() {
        let registry = leeward_controllers::builtin();
        for algorithm in
            registry.algorithms().filter(|algorithm| algorithm.params.iter().any(|spec| !spec.tuning_values.is_empty()))
        {
            let mut draws = ParamSampler::new(algorithm, 1.0, 1);
            assert!(!draws.knobs.is_empty(), "{}", algorithm.name);
            let all: Vec<Params> = (0..40).map(|_| draws.sample(&Params::new())).collect();
            for params in &all {
                let pairs: Vec<(&str, RawParam)> =
                    params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
                // Values may contradict each other, but must be in range.
                if let Err(error) = algorithm.params(&pairs) {
                    assert!(!error.to_string().contains("accepted"), "{}: {error}", algorithm.name);
                }
            }
            for knob in &draws.knobs {
                let values: Vec<_> =
                    all.iter().filter_map(|set| set.iter().find(|(name, _)| name == knob.name)).collect();
                assert!(
                    values.len() >= 8 && values.iter().any(|one| one != &values[0]),
                    "{} {}",
                    algorithm.name,
                    knob.name
                );
            }
        }
        let mut draws = ParamSampler::new(registry.find("seda").unwrap(), 1.0, 1);
        let best = draws.sample(&Params::new());
        let distance = |set: &Params| {
            let of = |params: &Params, knob: &Knob| {
                let value = params.iter().find(|(name, _)| name == knob.name).map(|(_, value)| value.clone());
                knob.range.place(&value.unwrap_or(RawParam::Text(knob.default.into())))
            };
            let moved = draws.knobs.iter().filter_map(|knob| Some((of(set, knob)? - of(&best, knob)?).abs()));
            moved.fold(0.0, f64::max)
        };
        let (near, far) = {
            let mut draws = ParamSampler::new(registry.find("seda").unwrap(), 1.0, 2);
            let mut farthest = |reach| (0..50).map(|_| distance(&draws.near(&best, reach))).fold(0.0, f64::max);
            (farthest(0.02), farthest(0.2))
        };
        assert!(near > 0.0 && near < 0.03 && far > 0.1 && far < 0.21, "{near} {far}");
        let draw = |seed| ParamSampler::new(registry.find("seda").unwrap(), 1.0, seed).sample(&Params::new());
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
