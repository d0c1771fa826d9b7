//! Records processes: passes the records of all sources to a trace for each process.
//!
//! Contains no sources, and no waiting: the caller decides when sources are polled.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use leeward_profile::format::meta::SegmentEnd;
use leeward_profile::format::request_totals::RequestTotals;

use super::config::{ConverterConfig, Written};
use super::converter::Converter;
use super::hidden::CopiedFiles;
use super::jit_map::JitMap;
use super::keep::KeepSlow;
use super::modules::{Modules, OpenFile};
use crate::clock::{now, wall};
use crate::process::Process;
use crate::record::{Mapping, Record, RecordKind, RecordSource, SourceError};

/// Records of different sources may arrive so many nanoseconds apart. Of requests that take less,
/// the begin is known before the samples around it are converted.
const SETTLING: u64 = 2_000_000_000;
/// Nanoseconds between two writes of what is buffered.
const FLUSH: u64 = 1_000_000_000;
/// Limit of processes; further children are not recorded.
const PROCESSES: usize = 256;
/// Limit of the traces of one process in a folder.
const FOLDERS: u32 = 10_000;
/// Reasons of a trace's end.
const STOPPED: u8 = 0;
const PROCESS_ENDED: u8 = 1;

/// How processes are recorded.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Each process gets a folder in this one, named after its id.
    pub out: PathBuf,
    /// CPU time between two samples, in nanoseconds.
    pub interval: u64,
    /// Bytes that each trace may have on disk.
    pub disk: u64,
    /// Labels of requests are recorded.
    pub labels: bool,
    /// Children that the processes fork are recorded, too.
    pub children: bool,
    /// Only slow requests, and what surrounds them, are written.
    pub keep: Option<KeepSlow>,
}

/// Why a recording can't begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// A source can't begin or go on.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A trace can't be written.
    #[error("{}: {source}", folder.display())]
    Write {
        /// The trace's folder.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A trace that was written.
#[derive(Clone, Debug)]
pub struct RecordedTrace {
    /// The process.
    pub pid: u32,
    /// The trace's folder.
    pub folder: PathBuf,
    /// What is in it.
    pub written: Written,
}

/// Traces that are being written.
#[derive(Debug)]
pub struct Recorder {
    config: RecorderConfig,
    processes: BTreeMap<u32, RecordedProcess>,
    finished: Vec<RecordedTrace>,
    /// When all that was buffered was last written.
    flushed: u64,
    /// A child was not recorded, because there were too many.
    is_full: bool,
    copied: CopiedFiles,
}

#[derive(Debug)]
struct RecordedProcess {
    folder: PathBuf,
    converter: Converter,
    /// When the process was seen to have ended.
    ended: Option<u64>,
    process: Option<Process>,
    /// Names of code that is compiled while the process runs.
    jit_map: Option<JitMap>,
}

impl Recorder {
    /// Records no process yet.
    pub fn new(config: RecorderConfig) -> Recorder {
        let (processes, finished, copied) = Default::default();
        Recorder { config, processes, finished, flushed: 0, is_full: false, copied }
    }

    /// Begins the trace of a process; returns its folder.
    ///
    /// # Errors
    /// The process has ended, or the folder can't be written.
    pub fn add(&mut self, process: Process) -> Result<PathBuf, RecorderError> {
        let pid = process.pid();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let files = files_of(Process::open(pid)?);
        let modules = Modules::new(&program.to_string_lossy(), files);
        self.begin(pid, Some(process), modules)
    }

    /// Takes the records that sources have, and converts what is settled.
    ///
    /// # Errors
    /// A source can't go on, or a trace can't be written.
    pub fn poll(&mut self, sources: &mut [&mut dyn RecordSource]) -> Result<(), RecorderError> {
        let before = now();
        self.take(sources, |source, report| source.poll(report))?;
        let is_due = before.saturating_sub(self.flushed) >= FLUSH;
        self.flushed = if is_due { before } else { self.flushed };
        for recorded in self.processes.values_mut() {
            let mut advanced = recorded.converter.advance(before.saturating_sub(SETTLING));
            if is_due {
                advanced = advanced.and_then(|()| recorded.converter.flush());
            }
            advanced.map_err(failed(&recorded.folder))?;
            if recorded.process.as_ref().is_some_and(|process| !process.is_running()) {
                recorded.ended.get_or_insert(before);
            }
        }
        self.finish_ended(before)
    }

    /// Says how many requests each process has answered; the threshold and the latencies are of all
    /// processes together.
    pub fn request_totals(&mut self, totals: &RequestTotals, answered: &BTreeMap<u32, u64>) {
        let is_alone = self.processes.len() + self.finished.len() == 1;
        for (pid, recorded) in &mut self.processes {
            let seen = answered.get(pid).copied().unwrap_or_default();
            recorded.converter.request_totals(RequestTotals { seen, ..totals.clone() }, is_alone);
        }
    }

    /// Says that from this time on nothing was recorded for a while.
    pub fn pause_at(&mut self, time: u64) {
        self.processes.values_mut().for_each(|recorded| recorded.converter.pause_at(time));
    }

    /// Says that samples are now this much CPU time apart, since the recording began `mean`, and
    /// that nothing was recorded for `paused` nanoseconds.
    ///
    /// # Errors
    /// The traces can't be written.
    pub fn set_pace(&mut self, interval: u64, mean: u64, paused: u64) -> Result<(), RecorderError> {
        self.config.interval = interval;
        for recorded in self.processes.values_mut() {
            recorded.converter.set_pace(interval, mean, paused).map_err(failed(&recorded.folder))?;
        }
        Ok(())
    }

    /// Returns the CPU time that the recorded processes have used, as far as it is known.
    pub fn cpu_time(&self) -> u64 {
        let times = self.processes.values().filter_map(|recorded| recorded.process.as_ref()?.cpu_time());
        times.fold(0, u64::saturating_add)
    }

    /// Writes a note for the user into all traces.
    ///
    /// # Errors
    /// The traces can't be written.
    pub fn note(&mut self, level: u8, topic: u8, text: &str) -> Result<(), RecorderError> {
        for recorded in self.processes.values_mut() {
            recorded.converter.note(level, topic, text).map_err(failed(&recorded.folder))?;
        }
        Ok(())
    }

    /// Returns whether all processes have ended.
    pub fn is_finished(&self) -> bool {
        self.processes.values().all(|recorded| recorded.ended.is_some())
    }

    /// Returns the processes that are recorded now.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// Returns what was written so far, by all processes.
    pub fn written(&self) -> Written {
        let open = self.processes.values().map(|recorded| recorded.converter.written());
        open.chain(self.finished.iter().map(|trace| trace.written)).fold(Written::default(), Written::plus)
    }

    /// Ends all traces, and returns them.
    ///
    /// # Errors
    /// A trace can't be written. The others are ended all the same.
    pub fn finish(mut self) -> Result<Vec<RecordedTrace>, RecorderError> {
        let mut result = Ok(());
        let time = now();
        for (pid, recorded) in std::mem::take(&mut self.processes) {
            let reason = if recorded.ended.is_some() { PROCESS_ENDED } else { STOPPED };
            let finished = self.finish_one(pid, recorded, time, reason);
            result = result.and(finished);
        }
        result.map(|()| self.finished)
    }

    /// Ends all traces after an error, as far as that is possible.
    pub fn abandon(mut self, error: &RecorderError) -> Vec<RecordedTrace> {
        let reason = match error {
            RecorderError::Write { source, .. } => SegmentEnd::reason_after(source),
            RecorderError::Source(_) => STOPPED,
        };
        let time = now();
        for (pid, recorded) in std::mem::take(&mut self.processes) {
            let _ = self.finish_one(pid, recorded, time, reason);
        }
        self.finished
    }

    /// Takes the records that sources still have, also those that they keep back. Call it before
    /// [`Recorder::finish`].
    ///
    /// # Errors
    /// As [`Recorder::poll`].
    pub fn take_last(&mut self, sources: &mut [&mut dyn RecordSource]) -> Result<(), RecorderError> {
        self.take(sources, |source, report| source.finish(report))
    }

    fn take(
        &mut self,
        sources: &mut [&mut dyn RecordSource],
        ask: impl Fn(&mut dyn RecordSource, &mut dyn FnMut(Record)) -> Result<(), SourceError>,
    ) -> Result<(), RecorderError> {
        for source in sources {
            let mut result = Ok(());
            ask(&mut **source, &mut |record| {
                if result.is_ok() {
                    result = self.record(record);
                }
            })?;
            result?;
        }
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), RecorderError> {
        let mut record = record;
        if let (RecordKind::Lost { .. }, false, Some(first)) =
            (&record.kind, self.processes.contains_key(&record.process), self.processes.keys().next())
        {
            // What a source lost may be of any process.
            (record.process, record.thread) = (*first, *first);
        }
        let process = record.process;
        if let RecordKind::Forked { child } = record.kind {
            return self.fork(process, child);
        }
        let Some(recorded) = self.processes.get_mut(&process) else { return Ok(()) };
        let is_exec = record.kind == RecordKind::Executed;
        recorded.converter.record(record).map_err(failed(&recorded.folder))?;
        if is_exec && let Some(command) = recorded.process.as_ref().and_then(|process| process.command_line().ok()) {
            recorded.converter.set_command(&command).map_err(failed(&recorded.folder))?;
        }
        Ok(())
    }

    fn fork(&mut self, parent: u32, child: u32) -> Result<(), RecorderError> {
        let is_known = |process| self.processes.contains_key(&process);
        if !self.config.children || is_known(child) || !is_known(parent) {
            return Ok(());
        }
        if self.processes.len() >= PROCESSES {
            let was_full = std::mem::replace(&mut self.is_full, true);
            let text = format!("only {PROCESSES} processes at a time are recorded: further children are left out");
            return if was_full { Ok(()) } else { self.note(1, 0, &text) };
        }
        // The child may have ended already; then its modules are known, and its end is in the
        // records.
        let process = Process::open(child).ok();
        let files: OpenFile = match Process::open(child) {
            Ok(process) => files_of(process),
            Err(_) => Box::new(|_| None),
        };
        let Some(recorded) = self.processes.get_mut(&parent) else { return Ok(()) };
        let modules = recorded.converter.modules().inherited(files);
        self.begin(child, process, modules).map(|_| ())
    }

    fn begin(&mut self, pid: u32, process: Option<Process>, mut modules: Modules) -> Result<PathBuf, RecorderError> {
        let folder = new_folder(&self.config.out, pid).map_err(failed(&self.config.out))?;
        let command = process.as_ref().and_then(|process| process.command_line().ok()).unwrap_or_default();
        modules.set_jit_map(JitMap::of_process(pid));
        let RecorderConfig { interval, disk, labels, keep, .. } = self.config;
        let config = ConverterConfig { pid, command, interval, began: (now(), wall()), disk, labels, keep };
        let converter = Converter::create(&folder, &config, modules).map_err(failed(&folder))?;
        let ended = process.is_none().then(now);
        let jit_map = JitMap::of_process(pid);
        let recorded = RecordedProcess { folder: folder.clone(), converter, ended, process, jit_map };
        self.processes.insert(pid, recorded);
        Ok(folder)
    }

    /// Ends the traces of processes that ended a while ago.
    fn finish_ended(&mut self, now: u64) -> Result<(), RecorderError> {
        let is_due =
            |recorded: &RecordedProcess| recorded.ended.is_some_and(|ended| now.saturating_sub(ended) > SETTLING);
        let due: Vec<u32> = self.processes.iter().filter(|(_, one)| is_due(one)).map(|(pid, _)| *pid).collect();
        for pid in due {
            if let Some(recorded) = self.processes.remove(&pid) {
                self.finish_one(pid, recorded, now, PROCESS_ENDED)?;
            }
        }
        Ok(())
    }

    fn finish_one(&mut self, pid: u32, recorded: RecordedProcess, time: u64, reason: u8) -> Result<(), RecorderError> {
        let RecordedProcess { folder, mut converter, ended, jit_map, .. } = recorded;
        for text in self.copied.put(&folder, converter.modules().take_hidden()) {
            let _ = converter.note(1, 0, &text);
        }
        let copied = jit_map.map_or(Ok(0), |map| map.copy(&folder));
        let result = converter.finish(ended.unwrap_or(time), reason);
        let (written, result) = match result {
            Ok(written) => (written, copied.map(|_| ()).map_err(failed(&folder))),
            Err((written, error)) => (written, Err(failed(&folder)(error))),
        };
        self.finished.push(RecordedTrace { pid, folder, written });
        result
    }
}

/// Makes a folder for a trace, named after its process. An earlier trace is kept: a number is
/// added, as by the run-time.
fn new_folder(out: &Path, pid: u32) -> io::Result<PathBuf> {
    fs::create_dir_all(out).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })?;
    let mut number = 1;
    loop {
        let name = if number == 1 { pid.to_string() } else { format!("{pid}.{number}") };
        let folder = out.join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < FOLDERS => number += 1,
            result => return result.map(|()| folder),
        }
    }
}

fn failed(folder: &Path) -> impl FnOnce(io::Error) -> RecorderError {
    let folder = folder.to_path_buf();
    move |source| RecorderError::Write { folder, source }
}

/// Opens the files of a process's mappings.
fn files_of(process: Process) -> OpenFile {
    let mut known: Vec<Mapping> = Vec::new();
    Box::new(move |mapping: &Mapping| -> Option<File> {
        let is_it = |mapped: &&Mapping| mapped.is_same(mapping);
        if known.iter().find(is_it).is_none() {
            known = process.mappings().ok()?;
        }
        // A library that was unloaded meanwhile still has its file.
        process.open_file(known.iter().find(is_it).unwrap_or(mapping)).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_earlier_trace_is_kept() {
        let out = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> = (0..3).map(|_| new_folder(out.path(), 12).unwrap()).collect();
        let names: Vec<_> = folders.iter().map(|folder| folder.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["12", "12.2", "12.3"]);
        fs::write(out.path().join("file"), "").unwrap();
        let error = new_folder(&out.path().join("file"), 12).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::metadata(&folders[2]).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
