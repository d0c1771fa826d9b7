//! Errors of a watch.

use leeward_sockdiag::SockDiagError;

/// Error that keeps a watch from seeing anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The kernel does not list sockets.
    #[error(transparent)]
    Sockets(#[from] SockDiagError),
    /// The text is no address.
    #[error("`{0}` is no address: expected :PORT, HOST:PORT, or the path of a Unix socket")]
    Address(String),
    /// No socket listens on the address.
    #[error("nothing listens on {address} in this network namespace{hint}")]
    NoListener {
        /// The address.
        address: String,
        /// What does listen, or what to try.
        hint: String,
    },
    /// No process has this number.
    #[error("no process has the number {0}")]
    NoProcess(u32),
    /// The process does not listen on the address.
    #[error("process {pid} does not listen on {address}{hint}")]
    ProcessWithoutListener {
        /// The process.
        pid: u32,
        /// The address.
        address: String,
        /// What it does listen on, or why that can't be seen.
        hint: String,
    },
}

impl WatchError {
    /// Error for a process that this user may not look into.
    pub(crate) fn invisible_process(pid: u32, address: String, is_root: bool) -> WatchError {
        let why = if is_root {
            "even root may not look into it from here, as from inside a container"
        } else {
            "it belongs to another user or to a container, so run this as root"
        };
        WatchError::ProcessWithoutListener { pid, address, hint: format!(" that you may see: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        for (is_root, says_so) in [(false, true), (true, false)] {
            let error = WatchError::invisible_process(1, ":80".into(), is_root).to_string();
            assert_eq!(error.contains("as root"), says_so, "{error}");
        }
    }
}
