//! Why a command did not succeed, its one line on stderr and its exit code.

use std::io::Write;
use std::process::ExitCode;

use leeward_lab::ScenarioError;
use leeward_lab::run::RunError;
use leeward_lab::store::StoreError;

use crate::plain::plain;

/// A command's failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request can't be done: exit code 2.
    Input(anyhow::Error),
    /// Something failed on the way, such as a full disk: exit code 1.
    Runtime(anyhow::Error),
    /// Ctrl-C: exit code 130, as shells expect it.
    Interrupted,
}

impl Failure {
    /// Says what went wrong; the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        // One line, whatever the cause: scripts and people read the last line. Nobody may be there to read it.
        let line: Vec<String> = plain(&self.to_string()).split_whitespace().map(String::from).collect();
        let _ = writeln!(std::io::stderr(), "error: {}", line.join(" "));
        match self {
            Failure::Runtime(_) => ExitCode::from(1),
            Failure::Input(_) => ExitCode::from(2),
            Failure::Interrupted => ExitCode::from(130),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // `#` adds the causes.
            Failure::Input(cause) | Failure::Runtime(cause) => write!(f, "{cause:#}"),
            Failure::Interrupted => f.write_str("interrupted; nothing was written"),
        }
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Failure::Input(anyhow::Error::msg(error.to_string()))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Cancelled => Failure::Interrupted,
            _ if error.is_input() => Failure::Input(anyhow::Error::msg(error.to_string())),
            _ => Failure::Runtime(anyhow::Error::msg(error.to_string())),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = anyhow::Error::msg(error.to_string());
        match error {
            StoreError::Io { .. } => Failure::Runtime(message),
            _ => Failure::Input(message),
        }
    }
}
