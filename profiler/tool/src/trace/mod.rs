//! A trace on disk: opened once from end to end, then read as often as wanted, in the order of the file or of time.

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

use thiserror::Error;

use crate::format::block::{BlockReader, Item};
use crate::format::event::{Decoder, FnSink, Sink};
use crate::format::meta::{ClockReport, Header, Module, Note, OverheadReport, SegmentEnd, Thread};
use crate::format::{Event, PREAMBLE, VERSION, kind};

pub use damage::{Damage, Region};
use runs::BlockRun;
pub use runs::TraceCounts;
pub(crate) use runs::start_of;

/// How far reading has come, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
}

/// Is told how far reading has come, and says whether to go on.
pub type ProgressCallback<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Ignores the progress, and goes on.
pub fn ignore_progress(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The CPUs that this process may use, up to as many as one thread that reads can keep busy.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// Wants no events.
struct NullSink;

impl Sink for NullSink {
    #[inline(always)]
    fn event(&mut self, _: &Event) {}
}

/// Why a trace can't be read at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system refuses to read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no trace of the profiler", .0.display())]
    NotATrace(PathBuf),
    /// A folder without segments.
    #[error("{} holds no trace (no file such as 00000000.lwt)", .0.display())]
    Empty(PathBuf),
    /// Another version wrote it.
    #[error("{}: trace format version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// The version it has.
        found: u16,
    },
    /// No segment has a readable header.
    #[error("{}: the header is damaged in every segment: nothing can be read", .0.display())]
    NoHeader(PathBuf),
    /// The watcher said so.
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

/// A trace that was read once: what it says about itself, where its events are, and what is wrong with it.
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
}

impl Trace {
    /// Opens the trace in a folder, or of one segment, and reads all of it once, with all CPUs.
    ///
    /// # Errors
    /// When nothing can be read. A trace that is damaged in part opens; [`Trace::damage`] tells.
    pub fn open(path: &Path, watch: &mut ProgressCallback<'_>) -> Result<Trace, TraceError> {
        Ok(Trace::open_on(path, cpus(), watch, |_| NullSink)?.0)
    }

    /// Like [`Trace::open`], handing each event to `each` on the way, in the order of the file: with one CPU.
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

    /// Like [`Trace::open`] on up to so many threads, each with a sink of its own, which `new` makes; it is told how many there will be.
    /// The events of a block go to the same sink, in their order; which one gets which block is not known beforehand, nor in which order.
    /// The trace is the same whatever the number of threads, and memory besides the sinks' is bounded.
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

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Header: what was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The threads that have a name.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    /// A thread by the writer's number.
    pub fn thread(&self, number: u32) -> Option<&Thread> {
        self.threads.get(&number)
    }

    /// Name of a thread: its own and the kernel's id.
    pub fn thread_name(&self, number: u32) -> String {
        match self.threads.get(&number) {
            Some(thread) if thread.name.is_empty() => format!("thread {}", thread.tid),
            Some(thread) => format!("{} ({})", thread.name, thread.tid),
            None => format!("thread #{number}"),
        }
    }

    /// The modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// File name of the program, whatever it calls itself: a server gives its workers titles.
    pub fn program(&self) -> Option<&str> {
        let module = self.modules.iter().find(|module| module.flags & Module::PROGRAM != 0)?;
        module.path.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Notes for the user.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// How it ended; `None` if its end is missing.
    pub fn end(&self) -> Option<&SegmentEnd> {
        self.end.as_ref()
    }

    /// Length of the recording in nanoseconds, whether anything happened or not; `None` if its begin or end is missing.
    pub fn duration(&self) -> Option<u64> {
        let end = self.end.filter(|end| end.reason != SegmentEnd::CONTINUES)?;
        let begin = self.begin?;
        // Other writers' clocks may begin late.
        let first = if self.counts.events > 0 { self.counts.first } else { begin };
        Some(end.time.saturating_sub(begin.min(first)))
    }

    /// How far the clock's scale was off at most, in nanoseconds.
    pub fn drift(&self) -> i64 {
        self.drift
    }

    /// Damage of the trace.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Course of the clock. Times at which it stood still are sorted by start, as far as they were listed.
    pub fn pace(&self) -> &ClockReport {
        &self.pace
    }

    /// Price of the recording and what was left out, where it was told to keep to a share of the CPU.
    pub fn share(&self) -> Option<&OverheadReport> {
        self.share.as_ref()
    }

    /// Resolution of the times of calls that was achieved for most of the time, in nanoseconds.
    pub fn resolution(&self) -> u64 {
        let mostly_coarse = self.pace.coarse > self.counts.span() / 2;
        let coarse = if mostly_coarse { self.pace.coarse_tick } else { 0 };
        self.header.resolution.max(self.pace.tick).max(coarse)
    }

    /// Text of a label by its number; `None` for 0 and for numbers that no block names.
    pub fn label(&self, number: u32) -> Option<&str> {
        self.labels.get(&number).map(String::as_str)
    }

    /// Counts of the trace's content.
    pub fn counts(&self) -> &TraceCounts {
        &self.counts
    }

    /// How many files it has, and their bytes together.
    pub fn size(&self) -> (usize, u64) {
        (self.segments.len(), self.segments.iter().map(|segment| segment.bytes).sum())
    }

    /// Hands out the events that end at `from` or later and begin at `to` or earlier, in the order of the file; others
    /// may come along.
    ///
    /// # Errors
    /// When a file can't be read any more, or the watcher stops it.
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

    /// Hands out all events that `keep` keeps, sorted by time; equal times in the order of the file. Memory is bounded.
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

    /// Hands out the events of a run. What is damaged was reported when the trace was opened.
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

/// Reads the bytes before the first block: the segment's number.
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
