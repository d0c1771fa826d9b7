//! Records processes: passes the records of all sources to traces.
//!
//! A process and the children that it forks have one trace: they run the same code at the same
//! addresses, and serve the same requests. A process gets a trace of its own when it executes
//! another program, or maps other code where the others have some.
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
use super::members::{Members, PROCESSES, TraceNumber};
use super::modules::{Modules, OpenFile, Place, VDSO};
use crate::clock::{now, wall};
use crate::process::{Process, Thread};
use crate::record::{Mapping, Record, RecordKind, RecordSource, SourceError};

/// Records of different sources may arrive so many nanoseconds apart. Of requests that take less,
/// the begin is known before the samples around it are converted.
const SETTLING: u64 = 2_000_000_000;
/// Nanoseconds between two writes of what is buffered.
const FLUSH: u64 = 1_000_000_000;
/// Limit of traces that are written at a time.
const TRACES: usize = 256;
/// Limit of the traces of one process in a folder.
const FOLDERS: u32 = 10_000;
/// Reasons of a trace's end.
const STOPPED: u8 = 0;
const PROCESS_ENDED: u8 = 1;

/// How processes are recorded.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Each trace gets a folder in this one, named after the id of its first process.
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
    /// The first process.
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
    members: Members,
    traces: BTreeMap<TraceNumber, OpenTrace>,
    begun: TraceNumber,
    finished: Vec<RecordedTrace>,
    /// When all that was buffered was last written.
    flushed: u64,
    /// A child was not recorded, because there were too many.
    is_full: bool,
    copied: CopiedFiles,
}

#[derive(Debug)]
struct OpenTrace {
    /// The first process.
    pid: u32,
    folder: PathBuf,
    converter: Converter,
    /// The process by which files are opened.
    opener: u32,
    /// Requests that its processes have answered.
    seen: u64,
    /// Names of code that is compiled while the process runs.
    jit_map: Option<JitMap>,
}

impl Recorder {
    /// Records no process yet.
    pub fn new(config: RecorderConfig) -> Recorder {
        let (members, traces, finished, copied) = Default::default();
        Recorder { config, members, traces, begun: 0, finished, flushed: 0, is_full: false, copied }
    }

    /// Records a process, from now on: in a new trace, or in that of the process that forked it.
    ///
    /// # Errors
    /// The process has ended, or the folder can't be written.
    pub fn add(&mut self, process: Process) -> Result<(), RecorderError> {
        let pid = process.pid();
        if let Some(trace) = self.trace_of_parent(&process)? {
            self.members.add(pid, trace, Some(process), now());
            return Ok(());
        }
        let files = files_of(Process::open(pid)?);
        let modules = Modules::new(&process.program().unwrap_or_default(), files);
        let trace = self.begin(pid, process.command_line().unwrap_or_default(), modules)?;
        self.members.add(pid, trace, Some(process), now());
        Ok(())
    }

    /// Returns the trace of the process that forked this one, if it has the same code.
    fn trace_of_parent(&mut self, process: &Process) -> Result<Option<TraceNumber>, RecorderError> {
        let Some(trace) = process.parent().and_then(|parent| self.members.trace(parent)) else { return Ok(None) };
        let Some(open) = self.traces.get_mut(&trace).filter(|open| open.can_be_shared()) else { return Ok(None) };
        if open.converter.modules().is_empty() {
            // The trace has just begun, and no source has told what is mapped.
            let Some(first) = self.members.process(open.pid) else { return Ok(None) };
            for mapping in first.mappings()? {
                open.record(Record {
                    time: now(),
                    process: open.pid,
                    thread: open.pid,
                    kind: RecordKind::Mapped(Box::new(mapping)),
                })?;
            }
        }
        // A program that was executed, and not forked, has other places.
        let (modules, program) = (open.converter.modules(), process.program().unwrap_or_default());
        let is_same = process.mappings()?.iter().all(|mapping| match modules.place(mapping) {
            Place::Known => true,
            Place::Free => *mapping.path != *program && &*mapping.path != VDSO,
            Place::Taken => false,
        });
        Ok(is_same.then_some(trace))
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
        for open in self.traces.values_mut() {
            let mut advanced = open.converter.advance(before.saturating_sub(SETTLING));
            if is_due {
                advanced = advanced.and_then(|()| open.converter.flush());
            }
            advanced.map_err(failed(&open.folder))?;
        }
        if is_due {
            self.members.note_ended(None, before);
        }
        self.finish_ended(before)
    }

    /// Says how many requests each process has answered; the threshold and the latencies are of all
    /// processes together.
    pub fn request_totals(&mut self, totals: &RequestTotals, answered: &BTreeMap<u32, u64>) {
        let is_alone = self.traces.len() + self.finished.len() == 1;
        let counts = self.members.count(answered);
        for (number, open) in &mut self.traces {
            open.seen += counts.get(number).copied().unwrap_or_default();
            open.converter.request_totals(RequestTotals { seen: open.seen, ..totals.clone() }, is_alone);
        }
    }

    /// Says that from this time on nothing was recorded for a while.
    pub fn pause_at(&mut self, time: u64) {
        self.traces.values_mut().for_each(|open| open.converter.pause_at(time));
    }

    /// Says that samples are now this much CPU time apart, since the recording began `mean`, and
    /// that nothing was recorded for `paused` nanoseconds.
    ///
    /// # Errors
    /// The traces can't be written.
    pub fn set_pace(&mut self, interval: u64, mean: u64, paused: u64) -> Result<(), RecorderError> {
        self.config.interval = interval;
        for open in self.traces.values_mut() {
            open.converter.set_pace(interval, mean, paused).map_err(failed(&open.folder))?;
        }
        Ok(())
    }

    /// Returns the CPU time that the recorded processes have used, as far as it is known.
    pub fn cpu_time(&mut self) -> u64 {
        self.members.cpu_time()
    }

    /// Writes a note for the user into all traces.
    ///
    /// # Errors
    /// The traces can't be written.
    pub fn note(&mut self, level: u8, topic: u8, text: &str) -> Result<(), RecorderError> {
        for open in self.traces.values_mut() {
            open.converter.note(level, topic, text).map_err(failed(&open.folder))?;
        }
        Ok(())
    }

    /// Returns whether all processes have ended.
    pub fn is_finished(&self) -> bool {
        self.members.have_ended()
    }

    /// Returns the processes that are recorded now.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.members.pids()
    }

    /// Returns what was written so far, by all processes.
    pub fn written(&self) -> Written {
        let open = self.traces.values().map(|open| open.converter.written());
        open.chain(self.finished.iter().map(|trace| trace.written)).fold(Written::default(), Written::plus)
    }

    /// Ends all traces, and returns them.
    ///
    /// # Errors
    /// A trace can't be written. The others are ended all the same.
    pub fn finish(mut self) -> Result<Vec<RecordedTrace>, RecorderError> {
        let mut result = Ok(());
        let time = now();
        self.members.note_ended(None, time);
        for (number, open) in std::mem::take(&mut self.traces) {
            let end = self.members.end_of(number);
            let finished = self.finish_one(open, end.unwrap_or(time), end.map_or(STOPPED, |_| PROCESS_ENDED));
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
        for (_, open) in std::mem::take(&mut self.traces) {
            let _ = self.finish_one(open, time, reason);
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
        if let (RecordKind::Lost { .. }, None, Some(first)) =
            (&record.kind, self.members.trace(record.process), self.members.pids().next())
        {
            // What a source lost may be of any process.
            (record.process, record.thread) = (first, first);
        }
        let (pid, thread, time) = (record.process, record.thread, record.time);
        let Some(mut trace) = self.members.trace(pid) else { return Ok(()) };
        let mut must_leave = false;
        match &record.kind {
            RecordKind::Forked { child } => return self.fork(pid, *child),
            RecordKind::Mapped(mapping) if self.members.shares(pid) => match self.place(trace, mapping) {
                Place::Known => return Ok(()),
                Place::Free => {}
                Place::Taken => must_leave = true,
            },
            RecordKind::Executed => must_leave = self.members.shares(pid),
            _ => {}
        }
        if must_leave {
            let Some(own) = self.leave(pid, time)? else { return Ok(()) };
            trace = own;
        }
        let (is_exec, is_end) = (record.kind == RecordKind::Executed, record.kind == RecordKind::Ended);
        let Some(open) = self.traces.get_mut(&trace) else { return Ok(()) };
        open.record(record)?;
        if is_exec && let Some(command) = self.members.process(pid).and_then(|process| process.command_line().ok()) {
            open.converter.set_command(&command).map_err(failed(&open.folder))?;
        }
        if is_end && thread == pid {
            self.members.note_ended(Some(pid), now());
        }
        Ok(())
    }

    fn place(&mut self, trace: TraceNumber, mapping: &Mapping) -> Place {
        self.traces.get_mut(&trace).map_or(Place::Free, |open| open.converter.modules().place(mapping))
    }

    fn fork(&mut self, parent: u32, child: u32) -> Result<(), RecorderError> {
        // Numbers of processes are used again.
        if !self.config.children || self.members.is_running(child) {
            return Ok(());
        }
        let Some(trace) = self.members.trace(parent) else { return Ok(()) };
        let is_crowded = self.traces.len() >= TRACES;
        let Some(open) = self.traces.get_mut(&trace) else { return Ok(()) };
        if self.members.is_full() {
            return self.leave_out(PROCESSES);
        }
        if open.can_be_shared() {
            self.members.add(child, trace, Process::child(child), now());
            return Ok(());
        }
        if is_crowded {
            return self.leave_out(TRACES);
        }
        // The child may have ended already; then its modules are known, and its end is in the
        // records.
        let modules = open.converter.modules().inherited(files_of_child(child));
        let process = Process::child(child);
        let command = process.as_ref().and_then(|process| process.command_line().ok()).unwrap_or_default();
        let trace = self.begin(child, command, modules)?;
        self.members.add(child, trace, process, now());
        Ok(())
    }

    /// Says once that there are too many processes.
    fn leave_out(&mut self, limit: usize) -> Result<(), RecorderError> {
        if std::mem::replace(&mut self.is_full, true) {
            return Ok(());
        }
        self.note(1, 0, &format!("only {limit} processes at a time are recorded: further children are left out"))
    }

    /// Gives a process a trace of its own from this time on; `None` if there are too many.
    fn leave(&mut self, pid: u32, time: u64) -> Result<Option<TraceNumber>, RecorderError> {
        let process = self.members.process(pid);
        let threads = process.and_then(|process| process.threads().ok()).unwrap_or_default();
        let first = (threads.iter().all(|thread| thread.id != pid)).then_some(pid);
        let command = process.and_then(|process| process.command_line().ok()).unwrap_or_default();
        let is_crowded = self.traces.len() >= TRACES;
        let Some(trace) = self.members.trace(pid) else { return Ok(None) };
        let Some(shared) = self.traces.get_mut(&trace) else { return Ok(None) };
        let of = |thread, kind| Record { time, process: pid, thread, kind };
        for thread in threads.iter().map(|thread| thread.id).chain(first) {
            shared.record(of(thread, RecordKind::Ended))?;
        }
        if is_crowded {
            self.members.remove(pid);
            return self.leave_out(TRACES).map(|()| None);
        }
        let modules = shared.converter.modules().inherited(files_of_child(pid));
        let trace = self.begin(pid, command, modules)?;
        self.members.set_trace(pid, trace);
        if let Some(open) = self.traces.get_mut(&trace) {
            for Thread { id, name } in threads {
                open.record(of(id, RecordKind::Named { name: name.into() }))?;
            }
        }
        Ok(Some(trace))
    }

    /// Begins the trace of a process.
    fn begin(&mut self, pid: u32, command: String, mut modules: Modules) -> Result<TraceNumber, RecorderError> {
        let folder = new_folder(&self.config.out, pid).map_err(failed(&self.config.out))?;
        modules.set_jit_map(JitMap::of_process(pid));
        let RecorderConfig { interval, disk, labels, keep, .. } = self.config;
        let config = ConverterConfig { pid, command, interval, began: (now(), wall()), disk, labels, keep };
        let converter = Converter::create(&folder, &config, modules).map_err(failed(&folder))?;
        let jit_map = JitMap::of_process(pid);
        self.begun += 1;
        self.traces.insert(self.begun, OpenTrace { pid, folder, converter, opener: pid, seen: 0, jit_map });
        Ok(self.begun)
    }

    /// Ends the traces of processes that ended a while ago.
    fn finish_ended(&mut self, now: u64) -> Result<(), RecorderError> {
        let ends = self.members.forget_ended(now.saturating_sub(SETTLING));
        let with_processes = self.members.traces();
        let ended: Vec<_> = self.traces.extract_if(.., |number, _| !with_processes.contains(number)).collect();
        let mut ended = ended.into_iter();
        ended.try_for_each(|(number, open)| {
            self.finish_one(open, ends.get(&number).copied().unwrap_or(now), PROCESS_ENDED)
        })
    }

    fn finish_one(&mut self, open: OpenTrace, time: u64, reason: u8) -> Result<(), RecorderError> {
        let OpenTrace { pid, folder, mut converter, jit_map, .. } = open;
        for text in self.copied.put(&folder, converter.modules().take_hidden()) {
            let _ = converter.note(1, 0, &text);
        }
        let copied = jit_map.map_or(Ok(0), |map| map.copy(&folder));
        let result = converter.finish(time, reason);
        let (written, result) = match result {
            Ok(written) => (written, copied.map(|_| ()).map_err(failed(&folder))),
            Err((written, error)) => (written, Err(failed(&folder)(error))),
        };
        self.finished.push(RecordedTrace { pid, folder, written });
        result
    }
}

impl OpenTrace {
    fn record(&mut self, record: Record) -> Result<(), RecorderError> {
        if matches!(record.kind, RecordKind::Mapped(_)) && record.process != self.opener {
            // The process that was first may have ended.
            self.opener = record.process;
            self.converter.modules().set_files(files_of_child(record.process));
        }
        self.converter.record(record).map_err(failed(&self.folder))
    }

    /// Children can have this trace. Those of a program that compiles code compile theirs into the
    /// same addresses.
    fn can_be_shared(&self) -> bool {
        !self.jit_map.as_ref().is_some_and(JitMap::exists)
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

/// Opens the files of a child's mappings; none if it has ended.
fn files_of_child(pid: u32) -> OpenFile {
    Process::open(pid).map_or_else(|_| Box::new(|_: &Mapping| None) as OpenFile, files_of)
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
