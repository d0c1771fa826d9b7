//! The limit of a file's size (`ulimit -f`): reaching it fails a write, like a full disk.
//!
//! Does not set limits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;

use crate::ignored_signals::IgnoredSignals;

/// Keeps the limit's signal from killing this process. Programs that it starts are killed as usual:
/// they don't inherit a handler, as they would inherit that the signal is ignored.
pub(crate) fn survive() {
    if !IgnoredSignals::of_process("self").contain(SIGXFSZ) {
        // The write fails in any case; without a handler the process ends before it can say so.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Says which limit was reached, where the system's own words may be taken for the disk's.
pub(crate) fn explain(error: &io::Error) -> Option<&'static str> {
    (error.kind() == io::ErrorKind::FileTooLarge).then_some("the limit of a file's size is reached (ulimit -f)")
}
