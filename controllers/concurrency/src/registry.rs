//! The concurrency limits by name.

pub use crate::policy::LimitPolicy;

use crate::{aimd, fixed, gradient, gradient2, knee, vegas};

/// Error: no limit has this name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("unknown concurrency limit `{name}`; accepted: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownLimit {
    /// The requested name.
    pub name: String,
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
