//! Errors in scenarios: one line with place, key and accepted values.

/// An error in a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("{file}: {source}; expected a scenario file (`leeward list` shows those that come with it)")]
    Read {
        /// The file.
        file: String,
        /// Cause.
        source: std::io::Error,
    },
    /// Something in the file or in an override is not accepted.
    #[error("{place}: {key}: {problem}")]
    Invalid {
        /// `file:line`, or `--set key=value` for an override.
        place: String,
        /// Path of the key, such as `workload.clients`.
        key: String,
        /// Description of the mistake, with the accepted values.
        problem: String,
    },
    /// There is no built-in scenario with this id.
    #[error("there is no scenario `{id}`; accepted: {accepted}, or the path of a file")]
    UnknownId {
        /// Requested id.
        id: String,
        /// Known ids.
        accepted: String,
    },
}
