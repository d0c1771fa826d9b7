//! The entry of a concurrency limit in the registry. Does not contain the registry.

use crate::{ConcurrencyLimit, LimitEnvironment};
use leeward_core::params::{ParamError, ParamSpec, Params, RawParam};

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
