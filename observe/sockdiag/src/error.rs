//! Errors of the reader.

use std::io;
use std::path::PathBuf;

/// Error of a question to the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SockDiagError {
    /// The kernel has no `sock_diag`, or the process may not open a netlink socket.
    #[error("the kernel does not list sockets (sock_diag): {0}")]
    Open(#[source] io::Error),
    /// The network namespace could not be entered.
    #[error("network namespace {path}: {source}")]
    Namespace {
        /// File of the namespace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused a question.
    #[error("the kernel does not list {what}: {source}")]
    Refused {
        /// Kind of socket that the question was about.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel's answer is not a message of `sock_diag`.
    #[error("the kernel's list of {what} can't be read: {reason}")]
    Malformed {
        /// Kind of socket that the question was about.
        what: &'static str,
        /// Part that can't be read.
        reason: String,
    },
}
