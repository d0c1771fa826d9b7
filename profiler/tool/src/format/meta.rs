//! Metadata of a trace: header, clock, modules, threads, notes, end.

use std::io;

use serde::Serialize;

use super::varint::{Cursor, FormatError};

/// Limit of the modules or threads in one block.
const MANY: usize = 1 << 20;
/// Limit of a stack's return addresses.
const STACK_DEPTH: usize = 256;

/// Conversion of the clock's units to nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds per unit, times 2³².
    pub scale: u64,
    /// A time of the clock.
    pub anchor: u64,
    /// The same time in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic: u64,
    /// The same time in nanoseconds since 1970.
    pub wall: u64,
}

impl Clock {
    /// A clock that counts nanoseconds.
    pub const NANOSECONDS: Clock = Clock { scale: 1 << 32, anchor: 0, monotonic: 0, wall: 0 };

    /// Converts a time to nanoseconds of `CLOCK_MONOTONIC`; saturates at 0 and `u64::MAX`.
    #[inline]
    pub fn nanos(&self, time: u64) -> u64 {
        // Called two or three times per event: the usual case avoids signed 128-bit numbers.
        let Some(difference) = time.checked_sub(self.anchor) else { return self.before_anchor(time) };
        let nanos = (u128::from(difference) * u128::from(self.scale)) >> 32;
        self.monotonic.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns whether the clock's times are already nanoseconds of `CLOCK_MONOTONIC`.
    pub fn is_identity(&self) -> bool {
        self.scale == 1 << 32 && self.anchor == self.monotonic
    }

    #[cold]
    fn before_anchor(&self, time: u64) -> u64 {
        let difference = i128::from(time) - i128::from(self.anchor);
        let nanos = i128::from(self.monotonic) + ((difference * i128::from(self.scale)) >> 32);
        nanos.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Converts nanoseconds of `CLOCK_MONOTONIC` to nanoseconds since 1970.
    pub fn wall(&self, nanos: u64) -> u64 {
        let wall = i128::from(self.wall) + i128::from(nanos) - i128::from(self.monotonic);
        wall.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Method by which calls were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// No calls were recorded.
    None,
    /// A ticking clock, read at entry and exit.
    Tick,
    /// A thread scans linked records.
    ScanRecords,
    /// A thread scans shadow stacks.
    ScanShadow,
    /// Samples of stacks, from which calls were reconstructed.
    Samples,
    /// An engine that this version does not know.
    Unknown,
}

impl Engine {
    /// Returns a description for output.
    pub fn description(self) -> &'static str {
        match self {
            Engine::None => "none (no calls of functions)",
            Engine::Tick => "tick",
            Engine::ScanRecords => "scan of linked records",
            Engine::ScanShadow => "scan of shadow stacks",
            Engine::Samples => "samples",
            Engine::Unknown => "unknown",
        }
    }

    /// Returns whether a call's second address lies inside the caller; otherwise it is a return
    /// address.
    pub fn caller_is_exact(self) -> bool {
        matches!(self, Engine::ScanRecords | Engine::ScanShadow)
    }
}

/// The first block of a segment. Thresholds in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The same in all segments of a trace.
    pub id: [u8; 16],
    /// The clock.
    pub clock: Clock,
    /// The recorded process.
    pub pid: u32,
    /// Method by which calls were recorded.
    pub engine: Engine,
    /// Shortest recorded call.
    pub call_threshold: u64,
    /// Shortest recorded wait or hold.
    pub lock_threshold: u64,
    /// Resolution of calls' times; 0 for exact times.
    pub resolution: u64,
    /// The architecture, such as `x86_64`.
    pub architecture: String,
    /// Writer of the trace.
    pub writer: String,
    /// The program and its arguments.
    pub command: String,
    /// The host's boot id: recordings with the same one have the same clock. Empty if unknown.
    pub boot: String,
}

impl Header {
    /// Parses the header.
    ///
    /// # Errors
    /// The payload is truncated, or a text is too long.
    pub fn read(payload: &[u8]) -> Result<Header, FormatError> {
        let mut cursor = Cursor::new(payload);
        let mut id = [0; 16];
        id.copy_from_slice(cursor.take(16)?);
        let clock =
            Clock { scale: cursor.u64()?, anchor: cursor.u64()?, monotonic: cursor.u64()?, wall: cursor.u64()? };
        let pid = cursor.u32()?;
        let engine = match cursor.u8()? {
            0 => Engine::None,
            1 => Engine::Tick,
            2 => Engine::ScanRecords,
            3 => Engine::ScanShadow,
            4 => Engine::Samples,
            _ => Engine::Unknown,
        };
        Ok(Header {
            id,
            clock,
            pid,
            engine,
            call_threshold: cursor.varint()?,
            lock_threshold: cursor.varint()?,
            resolution: cursor.varint()?,
            architecture: cursor.text()?,
            writer: cursor.text()?,
            command: cursor.text()?,
            // Older writers end here.
            boot: cursor.text().unwrap_or_default(),
        })
    }
}

/// An executable file in memory. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The writer's number.
    pub id: u64,
    /// 1 the program itself, 2 the kernel's vDSO.
    pub flags: u8,
    /// Time of loading.
    pub loaded: u64,
    /// Time of unloading.
    pub unloaded: Option<u64>,
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// Executable mappings: start and size.
    pub ranges: Vec<(u64, u64)>,
    /// The build-id; empty if unknown.
    pub build_id: Vec<u8>,
    /// Path of the file; a name in brackets if there is none that could be read.
    pub path: String,
}

impl Module {
    /// The flag of the program itself.
    pub const PROGRAM: u8 = 1;
    /// The flag of the kernel's code in the process, the vDSO.
    pub const KERNEL: u8 = 2;

    /// Parses a block of modules.
    ///
    /// # Errors
    /// The error of the first malformed module.
    pub fn read_all(payload: &[u8], clock: &Clock) -> Result<Vec<Module>, FormatError> {
        let mut cursor = Cursor::new(payload);
        let count = cursor.bounded(MANY)?;
        (0..count).map(|_| Module::read(&mut cursor, clock)).collect()
    }

    fn read(cursor: &mut Cursor<'_>, clock: &Clock) -> Result<Module, FormatError> {
        let (id, flags) = (cursor.varint()?, cursor.u8()?);
        let (loaded, unloaded, bias) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let count = cursor.u8()?;
        if count > 16 {
            return Err(FormatError::Length);
        }
        let ranges = (0..count).map(|_| Ok((cursor.u64()?, cursor.u64()?))).collect::<Result<Vec<_>, FormatError>>()?;
        let length = cursor.u8()?;
        if length > 64 {
            return Err(FormatError::Length);
        }
        let build_id = cursor.take(usize::from(length))?.to_vec();
        let unloaded = (unloaded != 0).then(|| clock.nanos(unloaded));
        Ok(Module { id, flags, loaded: clock.nanos(loaded), unloaded, bias, ranges, build_id, path: cursor.text()? })
    }

    /// Returns whether the module contained the address at that time.
    pub fn covers(&self, address: u64, time: u64) -> bool {
        self.holds(address) && self.unloaded.is_none_or(|unloaded| time <= unloaded)
    }

    /// Returns whether the address is in one of the module's mappings.
    pub fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|(start, size)| address.wrapping_sub(*start) < *size)
    }

    /// Returns the build-id in hexadecimal digits.
    pub fn build_id_text(&self) -> String {
        self.build_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A thread of the process. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The writer's number.
    pub number: u32,
    /// The kernel's id.
    pub tid: u32,
    /// Start of the thread.
    pub started: Option<u64>,
    /// End of the thread.
    pub ended: Option<u64>,
    /// The thread's name.
    pub name: String,
}

impl Thread {
    /// Parses a block of threads.
    ///
    /// # Errors
    /// The error of the first malformed thread.
    pub fn read_all(payload: &[u8], clock: &Clock) -> Result<Vec<Thread>, FormatError> {
        let mut cursor = Cursor::new(payload);
        let count = cursor.bounded(MANY)?;
        let mut threads = Vec::new();
        for _ in 0..count {
            let number = u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)?;
            let tid = u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)?;
            let mut time = || cursor.u64().map(|time| (time != 0).then(|| clock.nanos(time)));
            let (started, ended) = (time()?, time()?);
            threads.push(Thread { number, tid, started, ended, name: cursor.text()? });
        }
        Ok(threads)
    }
}

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// 0 information, 1 warning, 2 error.
    pub level: u8,
    /// Topic: 0 other, 1 scheduler events, 2 disk, 3 locks, 4 calls, 5 requests.
    pub topic: u8,
    /// The text.
    pub text: String,
}

impl Note {
    /// Parses a note.
    ///
    /// # Errors
    /// The payload is truncated, or the text is too long.
    pub fn read(payload: &[u8], clock: &Clock) -> Result<Note, FormatError> {
        let mut cursor = Cursor::new(payload);
        let time = clock.nanos(cursor.u64()?);
        Ok(Note { time, level: cursor.u8()?, topic: cursor.u8()?, text: cursor.text()? })
    }
}

/// The last block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Reason code; see [`SegmentEnd::description`].
    pub reason: u8,
    /// Events of the trace so far.
    pub events: u64,
    /// Lost events so far.
    pub lost: u64,
}

impl SegmentEnd {
    /// Reason code before another segment.
    pub const CONTINUES: u8 = 3;

    /// Returns the reason code of a trace that ends because it can't be written.
    pub fn reason_after(error: &io::Error) -> u8 {
        if error.kind() == io::ErrorKind::StorageFull { 2 } else { 4 }
    }

    /// Parses the block.
    ///
    /// # Errors
    /// The payload is truncated.
    pub fn read(payload: &[u8], clock: &Clock) -> Result<SegmentEnd, FormatError> {
        let mut cursor = Cursor::new(payload);
        let time = clock.nanos(cursor.u64()?);
        Ok(SegmentEnd { time, reason: cursor.u8()?, events: cursor.u64()?, lost: cursor.u64()? })
    }

    /// Returns whether recording ended early.
    pub fn is_early(&self) -> bool {
        matches!(self.reason, 2 | 4)
    }

    /// Returns a description of the reason.
    pub fn description(&self) -> &'static str {
        match self.reason {
            0 => "recording was stopped",
            1 => "the program ended",
            2 => "the disk was full, or the trace's budget was spent",
            3 => "another segment follows",
            4 => "writing failed",
            5 => "the program executed another program",
            _ => "unknown",
        }
    }
}

/// Time in which the clock was stopped: a call within it left no record. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStop {
    /// Value of the clock meanwhile.
    pub start: u64,
    /// Duration of the stop.
    pub length: u64,
    /// CPU time that the program used meanwhile.
    pub used: u64,
}

/// Stops and coarse times of the clock so far. Spans in nanoseconds; sums count from the start of
/// recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockReport {
    /// Total time of the stops.
    pub stopped: u64,
    /// Total time in which ticks were at least `coarse_tick` apart instead of the configured
    /// distance.
    pub coarse: u64,
    /// Time between two ticks while the machine was busy.
    pub coarse_tick: u64,
    /// CPU time of the program.
    pub used: u64,
    /// Time between two ticks, as configured or as the share of the CPU allowed.
    pub tick: u64,
    /// Stops since the previous block.
    pub stops: Vec<ClockStop>,
}

impl ClockReport {
    /// Parses the block.
    ///
    /// # Errors
    /// The payload is truncated.
    pub fn read(payload: &[u8], clock: &Clock) -> Result<ClockReport, FormatError> {
        let mut cursor = Cursor::new(payload);
        cursor.u64()?;
        let mut pace = ClockReport {
            stopped: cursor.varint()?,
            coarse: cursor.varint()?,
            coarse_tick: cursor.varint()?,
            used: cursor.varint()?,
            tick: cursor.varint()?,
            stops: Vec::new(),
        };
        for _ in 0..cursor.bounded(MANY)? {
            let start = clock.nanos(cursor.u64()?);
            pace.stops.push(ClockStop { start, length: cursor.varint()?, used: cursor.varint()? });
        }
        Ok(pace)
    }
}

/// Parses a block of labels: numbers and their texts.
///
/// # Errors
/// The error of the first malformed label.
pub fn read_labels(payload: &[u8]) -> Result<Vec<(u32, String)>, FormatError> {
    let mut cursor = Cursor::new(payload);
    let count = cursor.bounded(MANY)?;
    (0..count)
        .map(|_| Ok((u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)?, cursor.text()?)))
        .collect()
}

/// Parses a block of stacks: numbers and their return addresses, the innermost first.
///
/// # Errors
/// The error of the first malformed stack.
pub fn read_stacks(payload: &[u8]) -> Result<Vec<(u32, Vec<u64>)>, FormatError> {
    let mut cursor = Cursor::new(payload);
    let count = cursor.bounded(MANY)?;
    let mut stacks = Vec::new();
    for _ in 0..count {
        let number = u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)?;
        let depth = cursor.bounded(STACK_DEPTH)?;
        stacks.push((number, (0..depth).map(|_| cursor.u64()).collect::<Result<_, _>>()?));
    }
    Ok(stacks)
}

/// Parses a pair of clocks: the time in nanoseconds of `CLOCK_MONOTONIC`, and the drift of the
/// scale.
///
/// # Errors
/// The payload is truncated.
pub fn read_clock(payload: &[u8], clock: &Clock) -> Result<(u64, i64), FormatError> {
    let mut cursor = Cursor::new(payload);
    let (time, monotonic) = (cursor.u64()?, cursor.u64()?);
    let drift = i128::from(clock.nanos(time)) - i128::from(monotonic);
    Ok((clock.nanos(time), drift.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64))
}

/// A function that was omitted at times to keep the recording within its share of the CPU. Calls
/// are estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OmittedFunction {
    /// The function's address.
    pub function: u64,
    /// Calls since the start of recording.
    pub calls: u64,
    /// Number of unrecorded calls among them.
    pub missed: u64,
    /// Mean duration of a call, in nanoseconds.
    pub length: u64,
}

/// Overhead and omissions of a recording with a limited share of the program's CPU time.
///
/// Shares are in millionths, sums count from the start of recording, and calls are estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverheadReport {
    /// Configured share.
    pub asked: u64,
    /// Estimated actual share.
    pub estimated: u64,
    /// Functions that were called.
    pub functions: u64,
    /// Functions among them that were omitted at times.
    pub left_out: u64,
    /// All calls.
    pub calls: u64,
    /// Unrecorded calls.
    pub missed: u64,
    /// Mean duration in nanoseconds of the calls of the slowest omitted function.
    pub longest: u64,
    /// Holders of locks were omitted from some time on.
    pub holders: bool,
    /// Waits for locks were omitted from some time on.
    pub waits: bool,
    /// Scheduler events were omitted from some time on.
    pub sched: bool,
    /// Functions with most missing calls.
    pub most: Vec<OmittedFunction>,
}

impl OverheadReport {
    /// Parses the block.
    ///
    /// # Errors
    /// The payload is truncated.
    pub fn read(payload: &[u8]) -> Result<OverheadReport, FormatError> {
        let mut cursor = Cursor::new(payload);
        cursor.u64()?;
        let mut share = OverheadReport {
            asked: cursor.varint()?,
            estimated: cursor.varint()?,
            functions: cursor.varint()?,
            left_out: cursor.varint()?,
            calls: cursor.varint()?,
            missed: cursor.varint()?,
            longest: cursor.varint()?,
            ..OverheadReport::default()
        };
        let marks = cursor.u8()?;
        (share.holders, share.sched, share.waits) = (marks & 1 != 0, marks & 2 != 0, marks & 4 != 0);
        for _ in 0..cursor.bounded(MANY)? {
            let function = cursor.u64()?;
            let (calls, missed, length) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
            share.most.push(OmittedFunction { function, calls, missed, length });
        }
        Ok(share)
    }
}
