//! Errors in a file or a flag, which name the key. Does not contain keys.

/// Error in a file or a flag.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file is no TOML, has an unknown key, or a value of a wrong kind.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A key that must be there is not.
    #[error("`{key}` is missing: {help}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it is, with an example.
        help: &'static str,
    },
    /// The value of a key is out of range or malformed.
    #[error("`{key}`: {reason}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
}

pub(super) fn wrong(key: &str, reason: &dyn std::fmt::Display) -> SettingsError {
    SettingsError::Value { key: key.into(), reason: reason.to_string() }
}
