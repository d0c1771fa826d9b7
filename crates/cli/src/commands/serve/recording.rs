//! The recording of a server's controller: begun with the server, and what is said when it ends.

use std::io::Write;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_control::recording::EndReason;
use leeward_rpc::server::Recording;

use crate::failure::Failure;
use crate::stdout;

/// Recordings of a server, and of the second port beside it in a file beside the first.
pub(super) struct Recordings(Vec<Kept>);

/// A recording and its file.
struct Kept {
    recording: Recording,
    path: PathBuf,
    /// Whether there was no such file before.
    is_new: bool,
}

impl Recordings {
    /// Begins a recording to `path`, if there is one, and one to `path.NAME` for a second port of that name.
    pub(super) fn begin(path: Option<&Path>, second_port: Option<&str>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Recordings(Vec::new())) };
        let beside = second_port.map(|name| {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{name}"));
            PathBuf::from(beside)
        });
        let begin = |path: PathBuf| {
            let is_new = !path.exists();
            let recording = Recording::create(&path).with_context(|| format!("recording to {}", path.display()));
            Ok(Kept { recording: recording.map_err(Failure::Input)?, path, is_new })
        };
        let kept: Result<Vec<Kept>, Failure> = iter::once(path.to_path_buf()).chain(beside).map(begin).collect();
        Ok(Recordings(kept?))
    }

    /// The server's.
    pub(super) fn of_server(&self) -> Option<&Recording> {
        self.0.first().map(|kept| &kept.recording)
    }

    /// The second port's.
    pub(super) fn of_second_port(&self) -> Option<&Recording> {
        self.0.get(1).map(|kept| &kept.recording)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<&Recording> {
        self.0.iter().map(|kept| &kept.recording).collect()
    }

    /// Nothing has been recorded, for no server has started: removes the empty files.
    pub(super) fn forget(&self) {
        for kept in self.0.iter().filter(|kept| kept.is_new) {
            let _ = std::fs::remove_file(&kept.path);
        }
    }

    /// Ends them and says what there is.
    pub(super) fn end(&self) -> Result<(), Failure> {
        self.0.iter().try_for_each(|kept| end(&kept.recording, &kept.path))
    }
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
fn end(recording: &Recording, path: &Path) -> Result<(), Failure> {
    let written = || format!("recording to {}", path.display());
    let Some(recorded) = recording.finish().with_context(written).map_err(Failure::Runtime)? else { return Ok(()) };
    let calls = recorded.end.entries;
    if recorded.end.reason != EndReason::Complete {
        let words = recorded.end.reason.words();
        return Err(Failure::Runtime(anyhow!("{}: {words}; the first {calls} calls are there", written())));
    }
    stdout::print(&format!("recorded {calls} calls in {} ({:.1} MB)", path.display(), recorded.bytes as f64 / 1e6))
}
