//! Why a scenario is refused: always one line that says where, which key, and what would be accepted.

/// A scenario that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("{file}: {source}; expected a scenario file (`leeward list` shows those that come with it)")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Something in the file or in an override is not accepted.
    #[error("{place}: {key}: {problem}")]
    Invalid {
        /// `file:line`, or `--set key=value` for an override.
        place: String,
        /// The key's path, such as `workload.clients`.
        key: String,
        /// Description of the mistake and of what is accepted.
        problem: String,
    },
    /// There is no built-in scenario of this id.
    #[error("there is no scenario `{id}`; accepted: {accepted}, or the path of a file")]
    UnknownId {
        /// Id that was asked for.
        id: String,
        /// Ids that there are.
        accepted: String,
    },
}
