//! The policies of core allocation by name.

use super::{Allocator, CoreLimits, buffer, delay, delay_range, fixed, per_request, utilization};
use crate::params::{ParamError, ParamSpec, Params, Raw};

/// Makes a policy for a server of so many cores.
pub type Build = fn(&Params, CoreLimits) -> Result<Box<dyn Allocator>, ParamError>;

/// A policy: its name, what it may be told, and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct AllocationPolicy {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// What it does, in one line.
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
    pub fn params(&self, pairs: &[(&str, Raw)]) -> Result<Params, ParamError> {
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

/// No policy of that name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown allocator `{name}`; accepted: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownAllocator {
    /// What was asked for.
    pub name: String,
}

/// All policies.
pub const POLICIES: &[AllocationPolicy] = &[
    delay::POLICY,
    delay_range::POLICY,
    buffer::POLICY,
    utilization::POLICY,
    per_request::POLICY,
    per_request::IDEAL,
    fixed::POLICY,
];

/// The policy called `name`.
///
/// # Errors
/// [`UnknownAllocator`], naming all there are.
pub fn find(name: &str) -> Result<&'static AllocationPolicy, UnknownAllocator> {
    let unknown = || UnknownAllocator { name: name.chars().take(40).collect() };
    POLICIES.iter().find(|policy| policy.name == name).ok_or_else(unknown)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}
