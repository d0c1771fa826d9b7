//! What sources report about the recorded processes.
//!
//! Does not contain sources, and does not convert records to a trace.

use std::sync::Arc;

use crate::probe::bpf::RunningProgram;

/// Addresses of a stack, the innermost first. The first is where the thread is; the others are
/// return addresses.
pub type Stack = Arc<[u64]>;

/// Something that happened to a thread.
///
/// A source reports the records of one thread in the order of their times; records of different
/// threads or sources may arrive up to a second apart. [`RecordKind::Request`] is reported at the
/// end of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Id of the process, as seen in the recorder's namespace.
    pub process: u32,
    /// Kernel's id of the thread, as seen in the recorder's namespace.
    pub thread: u32,
    /// What happened.
    pub kind: RecordKind,
}

/// What happened to a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// The thread was on a CPU with this stack.
    Sample {
        /// The stack in user space; empty if it could not be read.
        stack: Stack,
    },
    /// The thread left its CPU.
    SwitchedOut {
        /// Why.
        reason: LeaveReason,
        /// The stack in user space, where it was asked for.
        stack: Option<Stack>,
    },
    /// The thread got a CPU.
    SwitchedIn {
        /// The CPU's number.
        cpu: u32,
    },
    /// Another thread made the thread runnable.
    Woken {
        /// Kernel's id of that thread.
        waker: u32,
    },
    /// The thread began, or got another name.
    Named {
        /// The name.
        name: Box<str>,
    },
    /// The thread ended.
    Ended,
    /// The process made a child.
    Forked {
        /// Id of the child process.
        child: u32,
    },
    /// The process executed another program: all modules are gone.
    Executed,
    /// The process mapped executable code.
    Mapped(Box<Mapping>),
    /// A request was served, from `start` to the record's time. The thread is the one that ended
    /// it.
    Request {
        /// The request's number, unique in the recording.
        id: u64,
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        start: u64,
        /// The thread that began the request, if it is another.
        started_by: Option<u32>,
        /// It was reported because it took long, and not as one of so many.
        is_slow: bool,
    },
    /// Work on a request began or went on in this thread. For requests that several threads or
    /// polls serve.
    RequestResumed {
        /// The request's number.
        id: u64,
    },
    /// The thread left the request, which is not over.
    RequestSuspended {
        /// The request's number.
        id: u64,
    },
    /// The request is over.
    RequestEnded {
        /// The request's number.
        id: u64,
    },
    /// A request's label.
    RequestLabelled {
        /// The request's number.
        id: u64,
        /// The label: at most 63 bytes.
        label: Box<str>,
    },
    /// The kernel lost records of this source.
    Lost {
        /// Their number.
        count: u64,
    },
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The thread could have gone on.
    Preempted,
    /// It waits, in a system call as far as the source can tell.
    Waits,
    /// It waits for a page of memory, in the middle of a function.
    Faults,
    /// A signal or a debugger has stopped it.
    Stopped,
}

/// Executable code in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Path as the recorded process sees it; `[vdso]`, `//anon` and `[heap]` have no file.
    pub path: Box<str>,
    /// Inode of the file; 0 without a file.
    pub inode: u64,
}

impl Mapping {
    /// Returns whether this is the same code, mapped to the same place. A file of several layers
    /// has several inodes.
    pub fn is_same(&self, other: &Mapping) -> bool {
        let place = |mapping: &Mapping| (mapping.start, mapping.length, mapping.offset);
        place(self) == place(other) && self.path == other.path
    }
}

/// How many requests a source saw, and which of them it reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// When they were counted, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// All requests that ended.
    pub seen: u64,
    /// From this latency on, in nanoseconds, each request was reported since the count before.
    pub threshold: u64,
}

/// Why a source can't begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No such process, or it has ended.
    #[error("process {0} does not exist, or has ended")]
    NoProcess(u32),
    /// The process belongs to another user.
    #[error("process {pid} belongs to {owner}: only {owner} and root may record it")]
    NotOwner {
        /// The process.
        pid: u32,
        /// Name or number of its user.
        owner: String,
    },
    /// The kernel refuses. The text says what to change.
    #[error("{0}")]
    Refused(String),
    /// A name is in no module of the process. The text says which names are like it.
    #[error("{0}")]
    NoSymbol(String),
    /// The system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was asked.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A source of records.
pub trait RecordSource {
    /// Reports what happened since the last call, without waiting.
    ///
    /// # Errors
    /// The source can't go on. Records that it has reported remain valid.
    fn poll(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError>;

    /// Reports what happened since the last call, and what was kept back. For the end of a
    /// recording.
    ///
    /// # Errors
    /// As [`RecordSource::poll`].
    fn finish(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        self.poll(report)
    }

    /// Begins or stops to record; at first it records. What was recorded can still be polled. Off,
    /// it costs the recorded process nothing. What began before it is on again is left out.
    ///
    /// # Errors
    /// The kernel refuses what it allowed before.
    fn set_recording(&mut self, is_on: bool) -> Result<(), SourceError>;

    /// Programs in the kernel that run for this source while it records.
    fn programs(&self) -> Vec<RunningProgram<'_>>;

    /// CPU time in nanoseconds that this source has cost the recorded process, as an estimate:
    /// without that of its programs, and without the recorder's own. `with_programs` adds an
    /// estimate of the programs', by what they have reported.
    fn cost(&self, with_programs: bool) -> u64;
}
