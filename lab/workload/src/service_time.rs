//! Distributions of the time that a request takes on a core.

use crate::rng::Rng;
use leeward_core::units::{Nanos, UnitError, parse_duration, parse_number};
use std::sync::Arc;

/// A distribution of service times.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceTime {
    /// Exponential distribution with this mean.
    Exponential(Nanos),
    /// Constant time.
    Constant(Nanos),
    /// 20 % of requests take four times the mean, 80 % a quarter of it (Breakwater §5.2).
    Bimodal(Nanos),
    /// Lognormal distribution with this mean; `sigma` is the standard deviation of the logarithm.
    Lognormal {
        /// Mean.
        mean: Nanos,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Uniform draw from samples, of which there is at least one: the simulator rejects an empty
    /// list.
    Empirical(Arc<[Nanos]>),
}

const EXPECTED: &str = "a service time such as `exp:10us`, `const:10us`, `bimodal:10us` or `lognormal:10us:1.5` (a mean above 0 and up to 60s, a sigma up to 5)";

impl ServiceTime {
    /// Parses `exp:10us`, `const:10us`, `bimodal:10us` or `lognormal:10us:1.5`. Empirical
    /// distributions come from a file: see [`ServiceTime::from_samples`].
    ///
    /// # Errors
    /// Any other text, a mean of zero or above a minute, and a sigma outside 0..=5.
    pub fn parse(text: &str) -> Result<ServiceTime, UnitError> {
        let fail = || UnitError { written: text.chars().take(40).collect(), expected: EXPECTED };
        let (shape, rest) = text.split_once(':').ok_or_else(fail)?;
        let mean = |text: &str| {
            let mean = parse_duration(text).map_err(|_| fail())?;
            if mean == Nanos::ZERO || mean > Nanos::from_secs(60) { Err(fail()) } else { Ok(mean) }
        };
        match shape {
            "exp" => Ok(ServiceTime::Exponential(mean(rest)?)),
            "const" => Ok(ServiceTime::Constant(mean(rest)?)),
            "bimodal" => Ok(ServiceTime::Bimodal(mean(rest)?)),
            "lognormal" => {
                let (first, sigma) = rest.split_once(':').ok_or_else(fail)?;
                let sigma = parse_number(sigma).map_err(|_| fail())?;
                if sigma > 5.0 {
                    return Err(fail());
                }
                Ok(ServiceTime::Lognormal { mean: mean(first)?, sigma })
            }
            _ => Err(fail()),
        }
    }

    /// Parses a text with one duration per line, with unit. Skips empty lines and lines that begin
    /// with `#`.
    ///
    /// # Errors
    /// The first line that is not a duration, with its number; a text without samples, or with more
    /// than a million.
    pub fn from_samples(text: &str) -> Result<ServiceTime, SamplesError> {
        let mut samples = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            samples.push(parse_duration(line).map_err(|error| SamplesError::Line { line: index + 1, error })?);
            if samples.len() > 1_000_000 {
                return Err(SamplesError::TooMany);
            }
        }
        if samples.is_empty() {
            return Err(SamplesError::Empty);
        }
        Ok(ServiceTime::Empirical(samples.into()))
    }

    /// Mean; zero for an empty list of samples.
    pub fn mean(&self) -> Nanos {
        match self {
            ServiceTime::Exponential(mean) | ServiceTime::Constant(mean) | ServiceTime::Bimodal(mean) => *mean,
            ServiceTime::Lognormal { mean, .. } => *mean,
            ServiceTime::Empirical(samples) => {
                let sum: u128 = samples.iter().map(|sample| u128::from(sample.0)).sum();
                Nanos(sum.checked_div(samples.len() as u128).unwrap_or(0) as u64)
            }
        }
    }

    /// Draws a service time.
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        match self {
            ServiceTime::Exponential(mean) => mean.scale(rng.exponential()),
            ServiceTime::Constant(mean) => *mean,
            ServiceTime::Bimodal(mean) => mean.scale(if rng.unit() < 0.2 { 4.0 } else { 0.25 }),
            ServiceTime::Lognormal { mean, sigma } => {
                // E[exp(μ + σZ)] = exp(μ + σ²/2), so μ = ln(mean) − σ²/2.
                mean.scale(libm::exp(sigma * rng.normal() - sigma * sigma / 2.0))
            }
            ServiceTime::Empirical(samples) => samples[rng.below(samples.len() as u64) as usize],
        }
    }
}

/// An error in a file of service times.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// A line is not a duration.
    #[error("line {line}: {error}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// Description of the mistake.
        error: UnitError,
    },
    /// There are no samples.
    #[error("no service times in it: expected one duration per line, such as `12us`")]
    Empty,
    /// There are more than a million samples.
    #[error("more than 1,000,000 service times")]
    TooMany,
}
