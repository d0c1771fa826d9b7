//! The concurrency limits by name.

use crate::{ConcurrencyLimit, LimitEnvironment, aimd, fixed, gradient, gradient2, knee, vegas};
use leeward_core::params::{ParamError, ParamSpec, Params, RawParam};

/// Error: no limit has this name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown concurrency limit `{name}`; accepted: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownLimit {
    /// The requested name.
    pub name: String,
}

/// A concurrency limit: its name, its parameters, and the function that builds it.
#[derive(Clone, Copy, Debug)]
pub struct LimitPolicy {
    /// The name on command lines.
    pub name: &'static str,
    /// Summary of the limit in one line.
    pub summary: &'static str,
    /// Publication of the limit.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Builds the limit.
    pub build: fn(&Params, &LimitEnvironment) -> Box<dyn ConcurrencyLimit>,
}

impl LimitPolicy {
    /// Reads parameters for this limit.
    ///
    /// # Errors
    /// The first parameter that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// Builds the limit.
    pub fn build(&self, params: &Params, environment: &LimitEnvironment) -> Box<dyn ConcurrencyLimit> {
        (self.build)(params, environment)
    }
}

/// All limits, Leeward's first.
pub const POLICIES: &[LimitPolicy] =
    &[knee::POLICY, gradient::POLICY, gradient2::POLICY, vegas::POLICY, aimd::POLICY, fixed::POLICY];

/// Returns the limit called `name`.
///
/// # Errors
/// [`UnknownLimit`], with all names in the registry.
pub fn find(name: &str) -> Result<&'static LimitPolicy, UnknownLimit> {
    let unknown = || UnknownLimit { name: name.chars().take(40).collect() };
    POLICIES.iter().find(|policy| policy.name == name).ok_or_else(unknown)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}
