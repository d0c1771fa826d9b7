//! Recordings of a server's controllers: start, end and reports.

use std::io::Write;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_recording::EndReason;
use leeward_rpc::server::Recording;

use crate::failure::Failure;
use crate::stdout;

/// Time limit for the disk to report why a recording has ended.
const REASON_TIMEOUT: Duration = Duration::from_millis(200);

/// Recordings of a server and, in a second file, of its second port.
pub(super) struct Recordings(Vec<RecordingFile>);

/// A recording and its file.
struct RecordingFile {
    recording: Recording,
    path: PathBuf,
    /// True if the file did not exist before.
    is_new: bool,
    /// Thread that ends a recording which stopped before the server.
    early_end: Option<JoinHandle<Result<(), Failure>>>,
}

impl Recordings {
    /// Starts a recording to `path`, if given, and one to `path.NAME` for a second port of that
    /// name.
    pub(super) fn start(path: Option<&Path>, second_port: Option<&str>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Recordings(Vec::new())) };
        let beside = second_port.map(|name| {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{name}"));
            PathBuf::from(beside)
        });
        let begin = |path: PathBuf| {
            let is_new = !path.exists();
            let recording = Recording::create(&path).with_context(|| format!("recording to {}", path.display()));
            Ok(RecordingFile { recording: recording.map_err(Failure::Input)?, path, is_new, early_end: None })
        };
        let kept: Result<Vec<RecordingFile>, Failure> =
            iter::once(path.to_path_buf()).chain(beside).map(begin).collect();
        Ok(Recordings(kept?))
    }

    /// Recording of the server.
    pub(super) fn server(&self) -> Option<&Recording> {
        self.0.first().map(|kept| &kept.recording)
    }

    /// Recording of the second port.
    pub(super) fn second_port(&self) -> Option<&Recording> {
        self.0.get(1).map(|kept| &kept.recording)
    }

    /// Checks that all recordings are running; reports one that has ended before the server.
    pub(super) fn poll(&mut self) {
        for kept in &mut self.0 {
            if kept.early_end.is_none() && !kept.recording.is_recording() {
                kept.end_early();
            }
        }
    }

    /// Removes the new, empty files, because no server has started.
    pub(super) fn remove_new_files(&self) {
        for kept in self.0.iter().filter(|kept| kept.is_new) {
            let _ = std::fs::remove_file(&kept.path);
        }
    }

    /// Ends the recordings and prints their summaries.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let broken = || Failure::Runtime(anyhow!("the recording's thread panicked"));
        self.0.into_iter().try_for_each(|kept| match kept.early_end {
            Some(ending) => ending.join().map_err(|_| broken())?,
            None => finish(&kept.recording, &kept.path),
        })
    }
}

impl RecordingFile {
    /// Ends a recording that stopped by itself. A separate thread does it, so that a hanging disk
    /// does not block the server.
    fn end_early(&mut self) {
        let (recording, path) = (self.recording.clone(), self.path.clone());
        let (reason_sender, reason_receiver) = mpsc::channel();
        self.early_end = Some(thread::spawn(move || {
            let outcome = finish(&recording, &path);
            let reason = outcome.as_ref().err().map(ToString::to_string);
            let _ = reason_sender.send(reason);
            outcome
        }));
        let reason = match reason_receiver.recv_timeout(REASON_TIMEOUT) {
            Ok(Some(reason)) => reason,
            Ok(None) => format!("recording to {}", self.path.display()),
            Err(_) => format!("recording to {}: the disk does not respond", self.path.display()),
        };
        let _ = writeln!(std::io::stderr(), "warning: the recording has ended early; the server continues: {reason}");
    }
}

/// Ends a recording and prints its summary.
fn finish(recording: &Recording, path: &Path) -> Result<(), Failure> {
    let written = || format!("recording to {}", path.display());
    let Some(recorded) = recording.finish().with_context(written).map_err(Failure::Runtime)? else { return Ok(()) };
    let calls = recorded.end.entries;
    if recorded.end.reason != EndReason::Complete {
        let reason = recorded.end.reason.description();
        return Err(Failure::Runtime(anyhow!("{}: {reason}; the first {calls} calls are recorded", written())));
    }
    stdout::print(&format!("recorded {calls} calls in {} ({:.1} MB)", path.display(), recorded.bytes as f64 / 1e6))
}
