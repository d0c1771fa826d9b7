//! The recording of a server's controller: begun with the server, and what is said when it ends.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use leeward_control::recording::EndReason;
use leeward_rpc::server::Recording;

use crate::failure::Failure;
use crate::stdout;

/// A recording to be.
pub(super) fn begin(path: &Path) -> Result<Recording, Failure> {
    Recording::create(path).with_context(|| format!("recording to {}", path.display())).map_err(Failure::Input)
}

/// Whether it still records; says so when it has ended before the server.
pub(super) fn goes_on(recording: &Recording) -> bool {
    let goes_on = recording.is_recording();
    if !goes_on {
        let _ = writeln!(std::io::stderr(), "warning: the recording has ended early; the server goes on");
    }
    goes_on
}

/// Ends it and says what there is.
pub(super) fn end(recording: &Recording, path: &Path) -> Result<(), Failure> {
    let written = || format!("recording to {}", path.display());
    let Some(recorded) = recording.finish().with_context(written).map_err(Failure::Runtime)? else { return Ok(()) };
    let calls = recorded.end.entries;
    if recorded.end.reason != EndReason::Complete {
        let words = recorded.end.reason.words();
        return Err(Failure::Runtime(anyhow!("{}: {words}; the first {calls} calls are there", written())));
    }
    stdout::print(&format!("recorded {calls} calls in {} ({:.1} MB)", path.display(), recorded.bytes as f64 / 1e6))
}
