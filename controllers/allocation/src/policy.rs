//! Registry entry of each policy, and the parameters that several policies share. Does not contain
//! policies, or their list ([`super::registry`]).

use super::{Allocator, CoreLimits};
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params, RawParam};
use leeward_core::units::Nanos;

/// Function that builds a policy for a service with these limits.
pub type Build = fn(&Params, CoreLimits) -> Result<Box<dyn Allocator>, ParamError>;

/// A policy: its name, its parameters, and the function that builds it.
#[derive(Clone, Copy, Debug)]
pub struct AllocationPolicy {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// Summary of the policy in one line.
    pub summary: &'static str,
    /// Publication of the policy.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Builds the policy for a service with these limits.
    pub build: Build,
}

impl AllocationPolicy {
    /// Reads parameters for this policy.
    ///
    /// # Errors
    /// The first parameter that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// Builds the policy for a service with these limits.
    ///
    /// # Errors
    /// Parameters that conflict with each other.
    pub fn build(&self, params: &Params, limits: CoreLimits) -> Result<Box<dyn Allocator>, ParamError> {
        (self.build)(params, limits)
    }
}

/// Interval between reallocations (poster §1: every 5 µs).
pub(super) const PERIOD: ParamSpec = ParamSpec {
    name: "period",
    kind: ParamKind::ANY_DURATION,
    default: "5us",
    doc: "how often the number of cores is reconsidered",
    tuning_values: &[],
};

/// The default of [`PERIOD`].
pub(super) const DEFAULT_PERIOD: Nanos = Nanos::from_micros(5);

/// Time of an unsuccessful search for work (one poll of each of 31 other queues at 100 ns, in the
/// poster's simulator).
pub(super) const SEARCH: ParamSpec = ParamSpec {
    name: "search",
    kind: ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) },
    default: "3.1us",
    doc: "how long a core looks for work in vain before it parks",
    tuning_values: &[],
};

/// The default of [`SEARCH`].
pub(super) const DEFAULT_SEARCH: Nanos = Nanos(3_100);
