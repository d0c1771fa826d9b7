//! The policies of core allocation by name.

pub use super::policy::{AllocationPolicy, Build};

use super::{buffer, delay, delay_range, fixed, per_request, utilization};

/// Error: no policy has this name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown allocator `{name}`; accepted: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownAllocator {
    /// The requested name.
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

/// Returns the policy called `name`.
///
/// # Errors
/// [`UnknownAllocator`], with all names in the registry.
pub fn find(name: &str) -> Result<&'static AllocationPolicy, UnknownAllocator> {
    let unknown = || UnknownAllocator { name: name.chars().take(40).collect() };
    POLICIES.iter().find(|policy| policy.name == name).ok_or_else(unknown)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}
