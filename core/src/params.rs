//! Typed parameters. Every algorithm declares its own ([`ParamSpec`]). Scenario files, flags and
//! user interfaces read them through one strict reader: a wrong key, unit or range is an error that
//! lists the accepted values.

use crate::units::{Nanos, UnitError, parse_duration, parse_number};

/// Type and range of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A span, `min..=max`.
    Duration {
        /// Smallest accepted value.
        min: Nanos,
        /// Largest accepted value.
        max: Nanos,
    },
    /// A number or a percentage, `min..=max`.
    Number {
        /// Smallest accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// A whole number, `min..=max`.
    Count {
        /// Smallest accepted value.
        min: u64,
        /// Largest accepted value.
        max: u64,
    },
    /// A word of this list.
    Choice(&'static [&'static str]),
}

impl ParamKind {
    /// A switch: `on` or `off`.
    pub const SWITCH: ParamKind = ParamKind::Choice(&["on", "off"]);

    /// Any positive span up to an hour.
    pub const ANY_DURATION: ParamKind = ParamKind::Duration { min: Nanos(1), max: Nanos(3_600_000_000_000) };

    /// Any number from 0 up.
    pub const POSITIVE: ParamKind = ParamKind::Number { min: 0.0, max: 1e12 };

    fn accepted(&self) -> String {
        match self {
            ParamKind::Duration { min, max } => format!("a duration from {min} to {max}, such as `80us`"),
            ParamKind::Number { min, max } => format!("a number from {min} to {max}, such as `0.02` or `2%`"),
            ParamKind::Count { min, max } => format!("a whole number from {min} to {max}"),
            ParamKind::Choice(words) => format!("one of {}", list(words)),
        }
    }
}

/// Parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// Its key in scenario files.
    pub name: &'static str,
    /// Type and range of its values.
    pub kind: ParamKind,
    /// Description of the default, which may follow from the SLO.
    pub default: &'static str,
    /// Summary of the parameter in one line.
    pub doc: &'static str,
    /// Values that `leeward tune` tries; empty for a parameter that it does not tune.
    pub tuning_values: &'static [&'static str],
}

impl ParamSpec {
    /// Creates a parameter that `leeward tune` does not tune.
    pub const fn new(name: &'static str, kind: ParamKind, default: &'static str, doc: &'static str) -> Self {
        ParamSpec { name, kind, default, doc, tuning_values: &[] }
    }

    /// Returns the same parameter with [`ParamSpec::tuning_values`].
    pub const fn with_tuning_values(mut self, tune: &'static [&'static str]) -> Self {
        self.tuning_values = tune;
        self
    }
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// A span.
    Duration(Nanos),
    /// A number.
    Number(f64),
    /// A whole number.
    Count(u64),
    /// A word.
    Choice(String),
}

/// A value as written in a file or on a command line, before its kind is known.
#[derive(Clone, Debug, PartialEq)]
pub enum RawParam {
    /// `"80us"`, `"fifo"`, `"2%"`.
    Text(String),
    /// `0.02`.
    Number(f64),
    /// `64`.
    Integer(i64),
    /// `true`: the same as `on`.
    Switch(bool),
}

impl std::fmt::Display for RawParam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RawParam::Text(text) => text.chars().take(40).collect::<String>().fmt(f),
            RawParam::Number(number) => number.fmt(f),
            RawParam::Integer(number) => number.fmt(f),
            RawParam::Switch(on) => on.fmt(f),
        }
    }
}

/// A parameter that can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// No such parameter.
    #[error("unknown parameter `{name}`; accepted: {accepted}")]
    Unknown {
        /// The name as written.
        name: String,
        /// The algorithm's parameters.
        accepted: String,
    },
    /// The parameter was set twice.
    #[error("parameter `{name}` is set twice")]
    Duplicate {
        /// Name of the parameter.
        name: String,
    },
    /// Wrong kind, unit or range.
    #[error("`{name}` can't be `{written}`; accepted: {accepted}")]
    Value {
        /// Name of the parameter.
        name: String,
        /// The value as written.
        written: String,
        /// Description of the accepted values.
        accepted: String,
    },
    /// Values that conflict with each other.
    #[error("{0}")]
    Conflict(String),
}

/// An algorithm's checked parameters; an unset parameter takes its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    set: Vec<(&'static str, ParamValue)>,
}

impl Params {
    /// Checks `pairs` against an algorithm's parameters.
    ///
    /// # Errors
    /// The first parameter that is unknown, set twice, of the wrong kind or out of range.
    pub fn read(specs: &[ParamSpec], pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        let mut params = Params::default();
        for (name, raw) in pairs {
            let spec = specs.iter().find(|spec| spec.name == *name).ok_or_else(|| ParamError::Unknown {
                name: (*name).chars().take(40).collect(),
                accepted: list(&specs.iter().map(|spec| spec.name).collect::<Vec<_>>()),
            })?;
            if params.get(spec.name).is_some() {
                return Err(ParamError::Duplicate { name: spec.name.into() });
            }
            params.set.push((spec.name, read_value(spec, raw)?));
        }
        Ok(params)
    }

    /// The set parameters, in the order of setting, in a form that [`Params::read`] reads again.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, RawParam)> {
        self.set.iter().map(|(name, value)| {
            let raw = match value {
                ParamValue::Duration(span) => RawParam::Text(format!("{}ns", span.0)),
                ParamValue::Number(number) => RawParam::Number(*number),
                ParamValue::Count(count) => RawParam::Integer(i64::try_from(*count).unwrap_or(i64::MAX)),
                ParamValue::Choice(word) => RawParam::Text(word.clone()),
            };
            (*name, raw)
        })
    }

    /// Returns the span called `name`, or `default` if it was not set.
    pub fn duration(&self, name: &str, default: Nanos) -> Nanos {
        match self.get(name) {
            Some(ParamValue::Duration(span)) => *span,
            _ => default,
        }
    }

    /// Returns the number called `name`, or `default`.
    pub fn number(&self, name: &str, default: f64) -> f64 {
        match self.get(name) {
            Some(ParamValue::Number(number)) => *number,
            _ => default,
        }
    }

    /// Returns the whole number called `name`, or `default`.
    pub fn count(&self, name: &str, default: u64) -> u64 {
        match self.get(name) {
            Some(ParamValue::Count(count)) => *count,
            _ => default,
        }
    }

    /// Returns the word called `name`, or `default`.
    pub fn choice<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        match self.get(name) {
            Some(ParamValue::Choice(word)) => word,
            _ => default,
        }
    }

    /// Whether `name` was set.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn get(&self, name: &str) -> Option<&ParamValue> {
        self.set.iter().find(|(set, _)| *set == name).map(|(_, value)| value)
    }
}

fn read_value(spec: &ParamSpec, raw: &RawParam) -> Result<ParamValue, ParamError> {
    let value = match (spec.kind, raw) {
        (ParamKind::Duration { min, max }, RawParam::Text(text)) => {
            in_range(parse_duration(text), min, max).map(ParamValue::Duration)
        }
        (ParamKind::Number { min, max }, RawParam::Text(text)) => {
            in_range(parse_number(text), min, max).map(ParamValue::Number)
        }
        (ParamKind::Number { min, max }, RawParam::Number(number)) => {
            in_range(Ok(*number), min, max).map(ParamValue::Number)
        }
        (ParamKind::Number { min, max }, RawParam::Integer(number)) => {
            in_range(Ok(*number as f64), min, max).map(ParamValue::Number)
        }
        (ParamKind::Count { min, max }, RawParam::Integer(count)) => {
            u64::try_from(*count).ok().filter(|count| (min..=max).contains(count)).map(ParamValue::Count)
        }
        (ParamKind::Count { min, max }, RawParam::Text(text)) => {
            text.parse().ok().filter(|count| (min..=max).contains(count)).map(ParamValue::Count)
        }
        (ParamKind::Choice(words), RawParam::Text(text)) => {
            words.contains(&text.as_str()).then(|| ParamValue::Choice(text.clone()))
        }
        (ParamKind::Choice(words), RawParam::Switch(on)) => {
            let word = if *on { "on" } else { "off" };
            words.contains(&word).then(|| ParamValue::Choice(word.into()))
        }
        _ => None,
    };
    value.ok_or_else(|| ParamError::Value {
        name: spec.name.into(),
        written: raw.to_string(),
        accepted: spec.kind.accepted(),
    })
}

fn in_range<T: PartialOrd>(value: Result<T, UnitError>, min: T, max: T) -> Option<T> {
    value.ok().filter(|value| *value >= min && *value <= max)
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[ParamSpec] = &[
        ParamSpec {
            name: "target",
            kind: ParamKind::Duration { min: Nanos(1), max: Nanos::from_secs(1) },
            default: "40 % of the SLO",
            doc: "",
            tuning_values: &[],
        },
        ParamSpec {
            name: "beta",
            kind: ParamKind::Number { min: 0.0, max: 1.0 },
            default: "2 %",
            doc: "",
            tuning_values: &[],
        },
        ParamSpec { name: "aqm", kind: ParamKind::SWITCH, default: "on", doc: "", tuning_values: &[] },
    ];

    fn check(name: &str, raw: RawParam, expected: Result<ParamValue, &str>) {
        let read = Params::read(SPECS, &[(name, raw)]);
        match expected {
            Ok(value) => assert_eq!(read.unwrap().get(name), Some(&value)),
            Err(part) => {
                let message = read.unwrap_err().to_string();
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn values_are_read_strictly() {
        let text = |text: &str| RawParam::Text(text.into());
        check("target", text("80us"), Ok(ParamValue::Duration(Nanos::from_micros(80))));
        check("target", text("80"), Err("a duration from 1ns to 1s"));
        check("target", RawParam::Integer(80), Err("such as `80us`"));
        check("target", text("2s"), Err("from 1ns to 1s"));
        check("beta", text("2%"), Ok(ParamValue::Number(0.02)));
        check("beta", RawParam::Number(f64::NAN), Err("from 0 to 1"));
        check("beta", RawParam::Number(-0.1), Err("from 0 to 1"));
        check("aqm", RawParam::Switch(false), Ok(ParamValue::Choice("off".into())));
        check("aqm", text("maybe"), Err("one of `on`, `off`"));
        check("betta", text("2%"), Err("accepted: `target`, `beta`, `aqm`"));
    }
}
