//! A trace on disk: opened once from end to end, then read repeatedly, in the order of the file or
//! of time.

mod block_decoder;
mod damage;
mod decoded;
mod open;
mod order;
mod pool;
mod runs;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::format::block::{BlockReader, Item};
use crate::format::event::{Decoder, FnSink, Sink};
use crate::format::meta::{ClockReport, Header, Module, Note, OverheadReport, SegmentEnd, Thread};
use crate::format::request_totals::RequestTotals;
use crate::format::{Event, PREAMBLE, VERSION, kind};

pub use damage::{Damage, Region};
use runs::BlockRun;
pub use runs::TraceCounts;
pub(crate) use runs::start_of;

/// Progress of reading, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
}

/// Receives the progress of reading, and decides whether to continue.
pub type ProgressCallback<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Ignores the progress and continues.
pub fn ignore_progress(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Returns the CPUs that this process may use, up to the number that one reading thread can keep
/// busy.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// Ignores all events.
struct NullSink;

impl Sink for NullSink {
    #[inline(always)]
    fn event(&mut self, _: &Event) {}
}

/// Reason why a trace can't be read at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system can't read a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not a trace.
    #[error("{} is no trace of the profiler", .0.display())]
    NotATrace(PathBuf),
    /// A folder without segments.
    #[error("{} holds no trace (no file such as 00000000.lwt)", .0.display())]
    Empty(PathBuf),
    /// Another version wrote the trace.
    #[error("{}: trace format version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u16,
    },
    /// No segment has a readable header.
    #[error("{}: the header is damaged in every segment: nothing can be read", .0.display())]
    NoHeader(PathBuf),
    /// The progress callback stopped the reading.
    #[error("interrupted")]
    Interrupted,
}

impl TraceError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> TraceError {
        let path = path.to_path_buf();
        move |source| TraceError::Io { path, source }
    }
}

/// A file of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    path: PathBuf,
    number: u32,
    bytes: u64,
}

/// An opened trace: its metadata, the locations of its events, and its damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    path: PathBuf,
    segments: Vec<Segment>,
    header: Header,
    threads: BTreeMap<u32, Thread>,
    modules: Vec<Module>,
    notes: Vec<Note>,
    begin: Option<u64>,
    end: Option<SegmentEnd>,
    drift: i64,
    damage: Damage,
    counts: TraceCounts,
    runs: Vec<BlockRun>,
    pace: ClockReport,
    share: Option<OverheadReport>,
    labels: BTreeMap<u32, String>,
    request_totals: Vec<RequestTotals>,
    stacks: BTreeMap<u32, Arc<[u64]>>,
}

impl Trace {
    /// Opens the trace in a folder, or of one segment, and reads all of it once, with all CPUs.
    ///
    /// # Errors
    /// Nothing can be read. A partly damaged trace opens; see [`Trace::damage`].
    pub fn open(path: &Path, watch: &mut ProgressCallback<'_>) -> Result<Trace, TraceError> {
        Ok(Trace::open_on(path, cpus(), watch, |_| NullSink)?.0)
    }

    /// Opens a trace like [`Trace::open`], with one CPU, and passes each event to `each` in the
    /// order of the file.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn open_with(
        path: &Path,
        watch: &mut ProgressCallback<'_>,
        each: impl FnMut(&Event),
    ) -> Result<Trace, TraceError> {
        open::open_sequential(path, watch, &mut FnSink(each))
    }

    /// Opens a trace like [`Trace::open`] on up to `threads` threads, each with its own sink.
    ///
    /// `new` makes the sinks; its argument is the number of threads. The events of a block go to
    /// one sink, in their order. The distribution of blocks to sinks and their order are
    /// unspecified. The trace does not depend on the number of threads, and memory without the
    /// sinks' is bounded.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn open_on<S: Sink + Send>(
        path: &Path,
        threads: usize,
        watch: &mut ProgressCallback<'_>,
        new: impl Fn(usize) -> S,
    ) -> Result<(Trace, Vec<S>), TraceError> {
        open::open_parallel(path, threads, watch, new)
    }

    /// Returns the path from which the trace was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header: the recorded process and the method of recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Iterates over the threads that have a name.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    /// Returns a thread by the writer's number.
    pub fn thread(&self, number: u32) -> Option<&Thread> {
        self.threads.get(&number)
    }

    /// Returns the name of a thread: its own and the kernel's id.
    pub fn thread_name(&self, number: u32) -> String {
        match self.threads.get(&number) {
            Some(thread) if thread.name.is_empty() => format!("thread {}", thread.tid),
            Some(thread) => format!("{} ({})", thread.name, thread.tid),
            None => format!("thread #{number}"),
        }
    }

    /// Returns the modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the file name of the program, even if the process has changed its title, like a
    /// server's workers.
    pub fn program(&self) -> Option<&str> {
        let module = self.modules.iter().find(|module| module.flags & Module::PROGRAM != 0)?;
        module.path.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Returns the notes for the user.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns the end of the trace; `None` if it is missing.
    pub fn end(&self) -> Option<&SegmentEnd> {
        self.end.as_ref()
    }

    /// Returns the duration of the recording in nanoseconds, events or not; `None` if its start or
    /// end is missing.
    pub fn duration(&self) -> Option<u64> {
        let end = self.end.filter(|end| end.reason != SegmentEnd::CONTINUES)?;
        let begin = self.begin?;
        // Other writers' clocks may begin late.
        let first = if self.counts.events > 0 { self.counts.first } else { begin };
        Some(end.time.saturating_sub(begin.min(first)))
    }

    /// Returns the greatest drift of the clock's scale, in nanoseconds.
    pub fn drift(&self) -> i64 {
        self.drift
    }

    /// Returns the damage of the trace.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Returns the report about the clock. The listed stops are sorted by start.
    pub fn pace(&self) -> &ClockReport {
        &self.pace
    }

    /// Returns overhead and omissions of a recording with a limited share of the CPU.
    pub fn share(&self) -> Option<&OverheadReport> {
        self.share.as_ref()
    }

    /// Returns the resolution of calls' times that held for most of the recording, in nanoseconds.
    pub fn resolution(&self) -> u64 {
        let mostly_coarse = self.pace.coarse > self.counts.span() / 2;
        let coarse = if mostly_coarse { self.pace.coarse_tick } else { 0 };
        self.header.resolution.max(self.pace.tick).max(coarse)
    }

    /// Returns the text of a label by its number; `None` for 0 and for unknown numbers.
    pub fn label(&self, number: u32) -> Option<&str> {
        self.labels.get(&number).map(String::as_str)
    }

    /// Returns the counts of all requests, of which the trace holds only some, in the order of
    /// time. Empty if the trace has all requests.
    pub fn request_totals(&self) -> &[RequestTotals] {
        &self.request_totals
    }

    /// Returns the counts of all requests up to the end; `None` if the trace has all, or lacks
    /// those of some time: its oldest part was deleted, or it could not be written any more.
    pub fn all_requests(&self) -> Option<&RequestTotals> {
        let is_whole = self.segments.first().is_some_and(|first| first.number == 0)
            && self.damage.gaps.is_empty()
            && self.end.as_ref().is_none_or(|end| !end.is_early());
        self.request_totals.last().filter(|_| is_whole)
    }

    /// Returns the labels by their numbers.
    pub fn labels(&self) -> &BTreeMap<u32, String> {
        &self.labels
    }

    /// Returns the stacks where requests began to wait, by their numbers: return addresses, the
    /// innermost first.
    pub fn stacks(&self) -> &BTreeMap<u32, Arc<[u64]>> {
        &self.stacks
    }

    /// Returns the counts of the trace's content.
    pub fn counts(&self) -> &TraceCounts {
        &self.counts
    }

    /// Returns the number of files, and their total bytes.
    pub fn size(&self) -> (usize, u64) {
        (self.segments.len(), self.segments.iter().map(|segment| segment.bytes).sum())
    }

    /// Passes the events that end at `from` or later and begin at `to` or earlier to `each`, in the
    /// order of the file.
    ///
    /// Other events may be passed, too.
    ///
    /// # Errors
    /// A file can't be read any more, or `watch` stops the reading.
    pub fn overlapping(
        &self,
        from: u64,
        to: u64,
        watch: &mut ProgressCallback<'_>,
        mut each: impl FnMut(&Event),
    ) -> Result<(), TraceError> {
        let runs: Vec<&BlockRun> = self.runs.iter().filter(|run| run.latest >= from && run.earliest <= to).collect();
        let total = runs.iter().map(|run| run.bytes).sum();
        let mut done = 0;
        let mut reader = Reader::new(self);
        for run in runs {
            reader.read(run, &mut each)?;
            done += run.bytes;
            report_progress(watch, done, total)?;
        }
        Ok(())
    }

    /// Passes all events that `keep` accepts to `each`, sorted by time; equal times in the order of
    /// the file. Memory is bounded.
    ///
    /// # Errors
    /// See [`Trace::overlapping`].
    pub fn in_order(
        &self,
        watch: &mut ProgressCallback<'_>,
        keep: impl Fn(&Event) -> bool,
        each: impl FnMut(&Event),
    ) -> Result<(), TraceError> {
        order::in_order(self, order::WINDOW, watch, keep, each)
    }
}

/// Reads runs of blocks again.
struct Reader<'a> {
    trace: &'a Trace,
    file: Option<(u32, File)>,
    decoder: Decoder,
}

impl<'a> Reader<'a> {
    fn new(trace: &'a Trace) -> Reader<'a> {
        Reader { trace, file: None, decoder: Decoder::new(trace.header.clock) }
    }

    /// Passes the events of a run to `each`. Damage was reported when the trace was opened.
    fn read(&mut self, run: &BlockRun, mut each: impl FnMut(&Event)) -> Result<(), TraceError> {
        let segment = &self.trace.segments[run.segment as usize];
        let io = || TraceError::io(&segment.path);
        if self.file.as_ref().is_none_or(|(number, _)| *number != run.segment) {
            self.file = Some((run.segment, File::open(&segment.path).map_err(io())?));
        }
        let Some((_, file)) = self.file.as_mut() else { return Ok(()) };
        file.seek(SeekFrom::Start(run.offset)).map_err(io())?;
        let mut blocks = BlockReader::new(file.by_ref().take(run.bytes), run.offset);
        while let Some(item) = blocks.next_item().map_err(io())? {
            if let Item::Block { kind: kind::EVENTS, payload, .. } = item {
                let _ = self.decoder.decode(payload, &mut each);
            }
        }
        Ok(())
    }
}

fn report_progress(watch: &mut ProgressCallback<'_>, done: u64, total: u64) -> Result<(), TraceError> {
    match watch(Progress { done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(TraceError::Interrupted),
    }
}

/// Reads the bytes before the first block, and returns the segment's number.
fn preamble(path: &Path, file: &mut File) -> Result<u32, TraceError> {
    let mut bytes = [0; PREAMBLE];
    match file.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(TraceError::NotATrace(path.to_path_buf()));
        }
        Err(error) => return Err(TraceError::io(path)(error)),
    }
    if bytes[..8] != crate::format::MAGIC {
        return Err(TraceError::NotATrace(path.to_path_buf()));
    }
    let found = u16::from_le_bytes([bytes[8], bytes[9]]);
    if found != VERSION {
        return Err(TraceError::Version { path: path.to_path_buf(), found });
    }
    Ok(u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]))
}
