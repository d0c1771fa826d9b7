//! The threading policies by name, and the notation in which a user chooses one: `utune`,
//! `static:SDB1-50`, or a setup alone.

use std::str::FromStr;

use super::parse::SetupError;
use super::policy::PolicySpec;
use super::setup::ThreadingSetup;
use super::{fixed, ipi, leeward, oracle, periodic, rotate, utune};

/// All policies.
pub const POLICIES: &[PolicySpec] =
    &[fixed::POLICY, periodic::FM, ipi::POLICY, periodic::TBD, utune::POLICY, leeward::POLICY, oracle::POLICY];

/// Policies for tests of a plant: they ignore the load, and give none of the other policies'
/// guarantees.
pub const TEST_POLICIES: &[PolicySpec] = &[rotate::POLICY];

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}

/// Returns the policy called `name`.
///
/// # Errors
/// [`ChoiceError::Unknown`], with all names in the registry.
pub fn find(name: &str) -> Result<&'static PolicySpec, ChoiceError> {
    let unknown = || ChoiceError::Unknown { name: name.chars().take(40).flat_map(char::escape_debug).collect() };
    POLICIES.iter().chain(TEST_POLICIES).find(|policy| policy.name == name).ok_or_else(unknown)
}

/// Error: the text is no choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// Neither a policy nor a setup.
    #[error("unknown threading policy `{name}`; accepted: {}, or a setup such as `SDB1-50`", names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The setup is malformed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// `static` without a setup.
    #[error("`static` needs its setup; accepted: `static:SDB1-50`")]
    NoSetup,
    /// A setup for a policy that chooses it by itself.
    #[error("`{0}` takes no setup; accepted: `{0}` alone")]
    NotStatic(&'static str),
}

/// A policy as a user chooses it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyChoice {
    /// The policy.
    pub policy: &'static PolicySpec,
    /// Setup of `static`.
    pub setup: Option<ThreadingSetup>,
}

impl FromStr for PolicyChoice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<PolicyChoice, ChoiceError> {
        let (name, setup) = match text.split_once(':') {
            Some((name, setup)) => (name, Some(setup)),
            None => (text, None),
        };
        match (find(name), setup) {
            (Ok(policy), Some(setup)) if policy.name == fixed::POLICY.name => {
                Ok(PolicyChoice { policy, setup: Some(setup.parse()?) })
            }
            (Ok(policy), None) if policy.name == fixed::POLICY.name => Err(ChoiceError::NoSetup),
            (Ok(policy), None) => Ok(PolicyChoice { policy, setup: None }),
            (Ok(policy), Some(_)) => Err(ChoiceError::NotStatic(policy.name)),
            // Policy names begin with a small letter, setups with a capital.
            (Err(_), None) if text.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Ok(PolicyChoice { policy: &fixed::POLICY, setup: Some(text.parse()?) })
            }
            (Err(unknown), _) => Err(unknown),
        }
    }
}

impl std::fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.setup {
            Some(setup) => write!(f, "{}:{setup}", self.policy.name),
            None => f.write_str(self.policy.name),
        }
    }
}
