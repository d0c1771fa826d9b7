//! Description of each policy for the registry, and the parameters that several policies share. Never here: any policy,
//! or their list ([`super::registry`]).

use super::{Allocator, CoreLimits};
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params, RawParam};
use leeward_core::units::Nanos;

/// Makes a policy for a server of so many cores.
pub type Build = fn(&Params, CoreLimits) -> Result<Box<dyn Allocator>, ParamError>;

/// A policy: its name, what it may be told, and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct AllocationPolicy {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// Summary of the policy in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Makes one for a service with these limits.
    pub build: Build,
}

impl AllocationPolicy {
    /// Reads parameters for this policy.
    ///
    /// # Errors
    /// The first that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// The policy for a service with these limits.
    ///
    /// # Errors
    /// Parameters that can't stand together.
    pub fn build(&self, params: &Params, limits: CoreLimits) -> Result<Box<dyn Allocator>, ParamError> {
        (self.build)(params, limits)
    }
}

/// How often cores are reallocated (poster §1: every 5 µs).
pub(super) const PERIOD: ParamSpec = ParamSpec {
    name: "period",
    kind: ParamKind::ANY_DURATION,
    default: "5us",
    doc: "how often the number of cores is reconsidered",
    tuning_values: &[],
};

/// The default of [`PERIOD`].
pub(super) const DEFAULT_PERIOD: Nanos = Nanos::from_micros(5);

/// How long a core looks for work in vain (one look at each of 31 other queues at 100 ns, in the poster's simulator).
pub(super) const SEARCH: ParamSpec = ParamSpec {
    name: "search",
    kind: ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) },
    default: "3.1us",
    doc: "how long a core looks for work in vain before it parks",
    tuning_values: &[],
};

/// The default of [`SEARCH`].
pub(super) const DEFAULT_SEARCH: Nanos = Nanos(3_100);
