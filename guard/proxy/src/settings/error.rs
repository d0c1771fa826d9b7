//! Errors in a file or a flag, which name the key. Does not contain keys.

/// Error in a file or a flag.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file is no TOML, has an unknown key, or a value of a wrong kind.
    #[error("{}", in_words(.0))]
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

impl SettingsError {
    /// What is wrong with a value, without its key.
    pub(super) fn reason(&self) -> String {
        match self {
            SettingsError::Value { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }
}

/// The error with the form that the value must have, in place of the program's own type.
fn in_words(error: &toml::de::Error) -> String {
    let message = error.message();
    let kinds = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = kinds.and_then(|kinds| kinds.rsplit_once(", expected ")) else {
        return error.to_string();
    };
    let value = found.split_once(' ').map_or(found, |(_, value)| value.trim_matches('`'));
    let form = match expected {
        "a string" | "path string" => "must be text in quotes".into(),
        "a boolean" => "must be `true` or `false`, without quotes".into(),
        "a sequence" if value.starts_with('"') => format!("must be a list, such as `[{value}]`"),
        "a sequence" => "must be a list".into(),
        "u8" => whole_number(u8::MAX.into()),
        "u32" | "usize" => whole_number(u32::MAX),
        _ => return error.to_string(),
    };
    error.to_string().replacen(message, &form, 1)
}

fn whole_number(most: u32) -> String {
    format!("must be a whole number from 0 to {most}, without quotes")
}

pub(super) fn wrong(key: &str, reason: &dyn std::fmt::Display) -> SettingsError {
    SettingsError::Value { key: key.into(), reason: reason.to_string() }
}
