//! Signals that a process ignores: `nohup`, a script's `&` and Python's subprocesses do that.
//!
//! Does not handle signals.

/// Signals that a process ignores.
pub(crate) struct IgnoredSignals(u64);

impl IgnoredSignals {
    /// Reads those of a process: its id, or `self`; none if there is no such process.
    pub(crate) fn of_process(process: &str) -> IgnoredSignals {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        IgnoredSignals(field.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0))
    }

    /// Returns whether a signal is among them.
    pub(crate) fn contain(&self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }
}
