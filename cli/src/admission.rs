//! Flags for a controller, its parameters and the objective, shared by servers and clients.

use anyhow::anyhow;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, parse_duration};

use crate::failure::Failure;

/// The controller, for both ends of a connection.
#[derive(Debug, clap::Args)]
pub(crate) struct AdmissionArgs {
    /// The controller (see `leeward list`); server and clients must run the same
    #[arg(long = "admission", value_name = "NAME", default_value = "auto")]
    pub(crate) name: String,
    /// A parameter of the controller, such as target=80us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// The latency objective
    #[arg(long, value_name = "SPAN", default_value = "200us")]
    pub(crate) slo: String,
    /// The network's round trip without queueing
    #[arg(long, value_name = "SPAN", default_value = "10us")]
    pub(crate) rtt: String,
}

/// Returns the controller and the parameters that `--set` gives.
pub(crate) fn controller(args: &AdmissionArgs) -> Result<(Algorithm, Params), Failure> {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(&args.name).map_err(|error| Failure::Input(anyhow!("--admission: {error}")))?;
    let pairs: Vec<(&str, RawParam)> = args.overrides.iter().map(|text| parse_pair(text)).collect::<Result<_, _>>()?;
    let params = algorithm.params(&pairs).map_err(|error| Failure::Input(anyhow!("--set: {error}")))?;
    Ok((algorithm.clone(), params))
}

/// Splits the argument of a `--set` into its name and value.
pub(crate) fn parse_pair(text: &str) -> Result<(&str, RawParam), Failure> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.trim(), parse_raw(value.trim()))),
        None => Err(Failure::Input(anyhow!("--set {text}: expected name=value, such as target=80us"))),
    }
}

/// Parses the value of a parameter: an integer or a number if possible, otherwise text.
pub(crate) fn parse_raw(text: &str) -> RawParam {
    text.parse()
        .map(RawParam::Integer)
        .or_else(|_| text.parse().map(RawParam::Number))
        .unwrap_or_else(|_| RawParam::Text(text.into()))
}

/// Parses a duration that must not be zero.
pub(crate) fn parse_span(flag: &str, text: &str) -> Result<Nanos, Failure> {
    match parse_duration(text) {
        Ok(span) if span > Nanos::ZERO => Ok(span),
        Ok(_) => Err(Failure::Input(anyhow!("{flag} must not be zero"))),
        Err(error) => Err(Failure::Input(anyhow!("{flag}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_by_type() {
        assert_eq!(parse_raw("64"), RawParam::Integer(64));
        assert_eq!(parse_raw("0.02"), RawParam::Number(0.02));
        assert_eq!(parse_raw("80us"), RawParam::Text("80us".into()));
    }

    #[test]
    fn a_duration_needs_a_unit_and_is_not_zero() {
        assert_eq!(parse_span("--slo", "200us").unwrap(), Nanos::from_micros(200));
        assert!(parse_span("--slo", "200").unwrap_err().to_string().contains("--slo"));
        assert!(parse_span("--slo", "0us").is_err());
    }
}
