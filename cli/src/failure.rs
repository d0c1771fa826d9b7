//! Failure of a command: its line on stderr and its exit code.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use leeward_lab::ScenarioError;
use leeward_lab::run::RunError;
use leeward_lab::store::StoreError;

use crate::file_limit;
use crate::sanitize::sanitize;

/// Failure of a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is wrong: a bad value, a file that is missing or of another kind, a folder in its
    /// place. Exit code 2.
    Input(anyhow::Error),
    /// The environment fails: no server listens, another protocol answers, a peer disconnects, a
    /// disk is full. Exit code 1.
    Runtime(anyhow::Error),
    /// This program was too late to measure: exit code 3.
    Unmeasured(anyhow::Error),
    /// Ctrl-C was pressed: exit code 130, as shells expect.
    Interrupted,
    /// Ctrl-C was pressed after a part was done and kept; the message names the part. Exit code
    /// 130.
    Partial(anyhow::Error),
    /// A signal ended the command: exit code 128 plus the signal's number, as in shells.
    Signal { number: i32, cause: anyhow::Error },
}

impl Failure {
    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        // Always one line: scripts and people read the last line. Errors are ignored: stderr may be
        // closed.
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

/// The error and its causes in one line; a cause at the end of the line is not repeated.
fn format_chain(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line += &format!(": {cause}");
        }
    }
    let limit = error.chain().filter_map(|cause| cause.downcast_ref()).find_map(file_limit::explain);
    limit.map_or(line.clone(), |limit| format!("{line}: {limit}"))
}

/// Failure to access a named file or folder. A missing path or one of another kind is an input
/// error.
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

    /// An error whose message ends with its cause.
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
    fn file_errors_are_split_into_input_and_runtime_errors() {
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
    fn each_cause_is_printed_once() {
        let cause = || std::io::Error::other("no such file");
        let check = |error: anyhow::Error, expected: &str| assert_eq!(Failure::Input(error).to_string(), expected);
        check(anyhow::Error::new(RepeatingError(cause())), "a.txt: no such file");
        check(anyhow::Error::new(RepeatingError(cause())).context("reading"), "reading: a.txt: no such file");
        check(anyhow::Error::new(cause()).context("writing"), "writing: no such file");
        let limit = anyhow::Error::new(io::Error::from(ErrorKind::FileTooLarge)).context("a.lwt");
        check(limit, "a.lwt: file too large: the limit of a file's size is reached (ulimit -f)");
    }
}
