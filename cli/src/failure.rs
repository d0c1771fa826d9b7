//! Why a command did not succeed, its one line on stderr and its exit code.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use leeward_lab::ScenarioError;
use leeward_lab::run::RunError;
use leeward_lab::store::StoreError;

use crate::sanitize::sanitize;

/// A command's failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong input: a bad value, a file that is missing or of another kind, a folder in its place. Exit code 2.
    Input(anyhow::Error),
    /// Wrong surroundings: nobody listens, another protocol answers, a peer goes away, a disk is full. Exit code 1.
    Runtime(anyhow::Error),
    /// This program was too late to measure what it was to measure: exit code 3.
    Unmeasured(anyhow::Error),
    /// Ctrl-C: exit code 130, as shells expect it.
    Interrupted,
    /// Ctrl-C when a part was done, which is kept; says which. The same exit code.
    Partial(anyhow::Error),
    /// A signal ended it: exit code 128 and the signal's number, as shells have it.
    Signal { number: i32, cause: anyhow::Error },
}

impl Failure {
    /// Says what went wrong; the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        // One line, whatever the cause: scripts and people read the last line. Nobody may be there to read it.
        let line: Vec<String> = sanitize(&self.to_string()).split_whitespace().map(String::from).collect();
        let _ = writeln!(std::io::stderr(), "error: {}", line.join(" "));
        match self {
            Failure::Runtime(_) => ExitCode::from(1),
            Failure::Input(_) => ExitCode::from(2),
            Failure::Unmeasured(_) => ExitCode::from(3),
            Failure::Interrupted | Failure::Partial(_) => ExitCode::from(130),
            Failure::Signal { number, .. } => ExitCode::from(128_u8.saturating_add(u8::try_from(*number).unwrap_or(0))),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Input(cause)
            | Failure::Runtime(cause)
            | Failure::Unmeasured(cause)
            | Failure::Partial(cause)
            | Failure::Signal { cause, .. } => f.write_str(&format_chain(cause)),
            Failure::Interrupted => f.write_str("interrupted; nothing was written"),
        }
    }
}

/// The error and its causes in one line; a cause that the line ends with already is not said again.
fn format_chain(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line += &format!(": {cause}");
        }
    }
    line
}

/// Failure with a file or folder that somebody named: that it is not there, or of another kind, is the name's fault.
pub(crate) fn file_failure(error: anyhow::Error) -> Failure {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::InvalidFilename) => {
            Failure::Input(error)
        }
        _ => Failure::Runtime(error),
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
        match error {
            StoreError::Io { .. } => file_failure(anyhow::Error::new(error)),
            _ => Failure::Input(anyhow::Error::msg(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose words end with its cause.
    #[derive(Debug)]
    struct RepeatingError(std::io::Error);

    impl std::fmt::Display for RepeatingError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a.txt: {}", self.0)
        }
    }

    impl std::error::Error for RepeatingError {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_named_file_of_another_kind_is_wrong_input() {
        let check = |kind: ErrorKind, is_input: bool| {
            let failure = file_failure(anyhow::Error::new(io::Error::from(kind)).context("reading a.rec"));
            assert_eq!(matches!(failure, Failure::Input(_)), is_input, "{kind}");
            let read = StoreError::Io { path: "a".into(), source: kind.into() };
            assert_eq!(matches!(Failure::from(read), Failure::Input(_)), is_input, "{kind}");
        };
        [ErrorKind::NotFound, ErrorKind::IsADirectory, ErrorKind::NotADirectory]
            .into_iter()
            .for_each(|kind| check(kind, true));
        [ErrorKind::StorageFull, ErrorKind::PermissionDenied].into_iter().for_each(|kind| check(kind, false));
    }

    #[test]
    fn every_cause_is_said_once() {
        let cause = || std::io::Error::other("no such file");
        let check = |error: anyhow::Error, expected: &str| assert_eq!(Failure::Input(error).to_string(), expected);
        check(anyhow::Error::new(RepeatingError(cause())), "a.txt: no such file");
        check(anyhow::Error::new(RepeatingError(cause())).context("reading"), "reading: a.txt: no such file");
        check(anyhow::Error::new(cause()).context("writing"), "writing: no such file");
    }
}
