//! Parsers accept or reject any text without a panic, and read the crate's own output.

use leeward_core::params::{ParamKind, ParamSpec, Params, RawParam};
use leeward_core::units::{Nanos, UnitError, parse_duration, parse_number, parse_ratio, parse_scaled};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

/// The same inputs in every run.
fn config() -> Config {
    Config { cases: 2_000, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() }
}

/// Any text, and many that are nearly valid.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9.]{0,30}",
        "[-+ ]{0,2}[0-9]{0,25}[.]?[0-9]{0,25}[ ]{0,2}(ns|us|µs|μs|ms|s|k|M|x|%|e9|inf)?[ ]?",
        "[0-9]{300,400}(s|M|x)?",
    ]
}

fn raw() -> impl Strategy<Value = RawParam> {
    prop_oneof![
        text().prop_map(RawParam::Text),
        any::<f64>().prop_map(RawParam::Number),
        any::<i64>().prop_map(RawParam::Integer),
        any::<bool>().prop_map(RawParam::Switch),
    ]
}

/// Every parameter of every algorithm.
fn specs() -> Vec<ParamSpec> {
    leeward_controllers::builtin().algorithms().flat_map(|algorithm| algorithm.params.iter().copied()).collect()
}

fn is_valid_quantity(parsed: Result<f64, UnitError>) -> bool {
    parsed.is_ok_and(|number| number.is_finite() && number >= 0.0)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn parsers_survive_any_text(text in text()) {
        for parsed in [parse_number(&text), parse_scaled(&text), parse_ratio(&text)] {
            match parsed {
                Err(error) => prop_assert!(error.written.chars().count() <= 40, "{error}"),
                parsed => prop_assert!(is_valid_quantity(parsed)),
            }
        }
        if let Ok(span) = parse_duration(&text) {
            prop_assert!(span <= Nanos(1_000_000_000_000_000_000), "{span}");
        }
    }

    #[test]
    fn parsed_values_lie_within_their_declared_range(index in any::<prop::sample::Index>(), raw in raw()) {
        let spec = *index.get(&specs());
        match Params::read(&[spec], &[(spec.name, raw)]) {
            Err(error) => prop_assert!(error.to_string().len() < 1_000, "{error}"),
            Ok(params) => match spec.kind {
                ParamKind::Duration { min, max } => {
                    prop_assert!((min..=max).contains(&params.duration(spec.name, Nanos::MAX)));
                }
                ParamKind::Number { min, max } => prop_assert!((min..=max).contains(&params.number(spec.name, f64::NAN))),
                ParamKind::Count { min, max } => prop_assert!((min..=max).contains(&params.count(spec.name, u64::MAX))),
                ParamKind::Choice(words) => prop_assert!(words.contains(&params.choice(spec.name, ""))),
            },
        }
    }

    #[test]
    fn the_reader_survives_any_parameter_name(name in any::<String>(), raw in raw()) {
        let read = Params::read(&specs(), &[(&name, raw.clone()), (&name, raw)]);
        prop_assert!(read.is_err(), "unknown, or set twice");
    }

    /// Three decimals of the largest unit: the printed text reads as the same span to within half a
    /// thousandth.
    #[test]
    fn durations_round_trip_through_text_within_rounding(digits in any::<u64>(), shift in 5u32..64) {
        let span = Nanos(digits >> shift);
        let read = parse_duration(&span.to_string()).unwrap();
        let unit = match span.0 { 0..1_000 => 1, 1_000..1_000_000 => 1_000, 1_000_000..1_000_000_000 => 1_000_000, _ => 1_000_000_000 };
        prop_assert!(read.0.abs_diff(span.0) <= unit / 2_000 + 1, "{} became {}", span.0, read.0);
        prop_assert_eq!(parse_duration(&read.to_string()).unwrap(), read, "printed once, it is exact");
    }

    /// Spans that need no more than three decimals are exact at once.
    #[test]
    fn round_durations_round_trip_through_text_exactly(thousandths in 0u64..1_000_000, unit in 0u32..3) {
        let span = Nanos(thousandths * 1_000u64.pow(unit));
        prop_assert_eq!(parse_duration(&span.to_string()), Ok(span));
    }
}

/// A tuning value that fails to parse would be a mistake in the declaration.
#[test]
fn every_declared_candidate_can_be_read() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        for spec in algorithm.params {
            for candidate in spec.tuning_values {
                let pair = [(spec.name, RawParam::Text((*candidate).into()))];
                assert!(algorithm.params(&pair).is_ok(), "{} {} = {candidate}", algorithm.name, spec.name);
            }
        }
        assert!(!algorithm.summary.is_empty() && !algorithm.source.is_empty(), "{}", algorithm.name);
    }
}
