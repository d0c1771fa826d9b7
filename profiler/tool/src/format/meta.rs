//! Metadata of a trace: header, clock, modules, threads, notes, end.

use serde::Serialize;

use super::varint::{Cursor, FormatError};

/// Most modules and threads that one block may name.
const MANY: usize = 1 << 20;

/// How the clock's units become nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds per unit, times 2³².
    pub scale: u64,
    /// A time of the clock.
    pub anchor: u64,
    /// The same in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic: u64,
    /// The same in nanoseconds since 1970.
    pub wall: u64,
}

impl Clock {
    /// A clock that counts nanoseconds.
    pub const NANOSECONDS: Clock = Clock { scale: 1 << 32, anchor: 0, monotonic: 0, wall: 0 };

    /// Nanoseconds of `CLOCK_MONOTONIC`, from 0 to the largest number.
    #[inline]
    pub fn nanos(&self, time: u64) -> u64 {
        // Asked two or three times per event: the usual case without signed numbers of 128 bits.
        let Some(difference) = time.checked_sub(self.anchor) else { return self.before_anchor(time) };
        let nanos = (u128::from(difference) * u128::from(self.scale)) >> 32;
        self.monotonic.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether its times are nanoseconds of `CLOCK_MONOTONIC` as they are.
    pub fn is_identity(&self) -> bool {
        self.scale == 1 << 32 && self.anchor == self.monotonic
    }

    #[cold]
    fn before_anchor(&self, time: u64) -> u64 {
        let difference = i128::from(time) - i128::from(self.anchor);
        let nanos = i128::from(self.monotonic) + ((difference * i128::from(self.scale)) >> 32);
        nanos.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Nanoseconds since 1970 of a time in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn wall(&self, nanos: u64) -> u64 {
        let wall = i128::from(self.wall) + i128::from(nanos) - i128::from(self.monotonic);
        wall.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// How calls were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Not at all.
    None,
    /// A clock that ticks, read at entry and exit.
    Tick,
    /// A thread scans linked records.
    ScanRecords,
    /// A thread scans shadow stacks.
    ScanShadow,
    /// An engine that this version does not know.
    Unknown,
}

impl Engine {
    /// In words.
    pub fn description(self) -> &'static str {
        match self {
            Engine::None => "none (no calls of functions)",
            Engine::Tick => "tick",
            Engine::ScanRecords => "scan of linked records",
            Engine::ScanShadow => "scan of shadow stacks",
            Engine::Unknown => "unknown",
        }
    }

    /// Whether a call's second address is one inside the caller to be taken as it is, not one to return to.
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
    /// How calls were recorded.
    pub engine: Engine,
    /// Shortest call that is recorded.
    pub call_threshold: u64,
    /// Shortest wait or hold that is recorded.
    pub lock_threshold: u64,
    /// Resolution of calls' times; 0 exact.
    pub resolution: u64,
    /// Such as `x86_64`.
    pub architecture: String,
    /// Writer of the trace.
    pub writer: String,
    /// The program and its arguments.
    pub command: String,
}

impl Header {
    /// Reads it.
    ///
    /// # Errors
    /// When it is cut off or a text is too long.
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
    /// When it was loaded.
    pub loaded: u64,
    /// When it was unloaded.
    pub unloaded: Option<u64>,
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// Executable mappings: start and size.
    pub ranges: Vec<(u64, u64)>,
    /// The build-id; empty if unknown.
    pub build_id: Vec<u8>,
    /// Where the file was.
    pub path: String,
}

impl Module {
    /// The flag of the program itself.
    pub const PROGRAM: u8 = 1;

    /// Reads a block of modules.
    ///
    /// # Errors
    /// What is wrong with the first that can't be read.
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

    /// Whether the address was in it at that time.
    pub fn covers(&self, address: u64, time: u64) -> bool {
        self.holds(address) && self.unloaded.is_none_or(|unloaded| time <= unloaded)
    }

    /// Whether the address is in one of its mappings.
    pub fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|(start, size)| address.wrapping_sub(*start) < *size)
    }

    /// The build-id in hexadecimal digits.
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
    /// When it started.
    pub started: Option<u64>,
    /// When it ended.
    pub ended: Option<u64>,
    /// Its name.
    pub name: String,
}

impl Thread {
    /// Reads a block of threads.
    ///
    /// # Errors
    /// What is wrong with the first that can't be read.
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

/// Text for the user.
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
    /// Reads it.
    ///
    /// # Errors
    /// When it is cut off or too long.
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
    /// Why: see [`End::words`].
    pub reason: u8,
    /// Events of the trace up to here.
    pub events: u64,
    /// Events that were lost up to here.
    pub lost: u64,
}

impl SegmentEnd {
    /// The reason that says that another segment follows.
    pub const CONTINUES: u8 = 3;

    /// Reads it.
    ///
    /// # Errors
    /// When it is cut off.
    pub fn read(payload: &[u8], clock: &Clock) -> Result<SegmentEnd, FormatError> {
        let mut cursor = Cursor::new(payload);
        let time = clock.nanos(cursor.u64()?);
        Ok(SegmentEnd { time, reason: cursor.u8()?, events: cursor.u64()?, lost: cursor.u64()? })
    }

    /// Whether recording ended before it was wanted to.
    pub fn is_early(&self) -> bool {
        matches!(self.reason, 2 | 4)
    }

    /// The reason in words.
    pub fn description(&self) -> &'static str {
        match self.reason {
            0 => "recording was stopped",
            1 => "the program ended",
            2 => "the disk was full, or the trace's budget was spent",
            3 => "another segment follows",
            4 => "writing failed",
            5 => "the program started another in its place",
            _ => "unknown",
        }
    }
}

/// Time in which the clock stood still: a call within left nothing. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStop {
    /// Value of the clock meanwhile.
    pub start: u64,
    /// How long.
    pub length: u64,
    /// CPU time that the program used meanwhile.
    pub used: u64,
}

/// Course of the clock so far: how long it stood still, how long it was coarse. Spans in nanoseconds; sums are since the recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockReport {
    /// How long it stood still in all.
    pub stopped: u64,
    /// How long it ticked no more often than every `coarse_tick`, though it was told to.
    pub coarse: u64,
    /// Between two ticks while the machine was busy.
    pub coarse_tick: u64,
    /// CPU time of the program.
    pub used: u64,
    /// Between two ticks, as it was told or as its share of the CPU allowed.
    pub tick: u64,
    /// When it stood still, since the block before.
    pub stops: Vec<ClockStop>,
}

impl ClockReport {
    /// Reads it.
    ///
    /// # Errors
    /// When it is cut off.
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

/// Reads a block of labels: numbers and their texts.
///
/// # Errors
/// What is wrong with the first that can't be read.
pub fn read_labels(payload: &[u8]) -> Result<Vec<(u32, String)>, FormatError> {
    let mut cursor = Cursor::new(payload);
    let count = cursor.bounded(MANY)?;
    (0..count)
        .map(|_| Ok((u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)?, cursor.text()?)))
        .collect()
}

/// A pair of clocks: the time in nanoseconds of `CLOCK_MONOTONIC`, and how far the scale has drifted.
///
/// # Errors
/// When it is cut off.
pub fn read_clock(payload: &[u8], clock: &Clock) -> Result<(u64, i64), FormatError> {
    let mut cursor = Cursor::new(payload);
    let (time, monotonic) = (cursor.u64()?, cursor.u64()?);
    let drift = i128::from(clock.nanos(time)) - i128::from(monotonic);
    Ok((clock.nanos(time), drift.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64))
}

/// Function that was left out at times so that recording kept to its share of the CPU. Calls are estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OmittedFunction {
    /// Its address.
    pub function: u64,
    /// Calls since the recording began.
    pub calls: u64,
    /// How many of them nobody looked at.
    pub missed: u64,
    /// Mean length of a call, in nanoseconds.
    pub length: u64,
}

/// Price of a recording that was told to keep to a share of the program's CPU time, and what was left out for it. Shares are in millionths,
/// sums since the recording began, and calls are estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverheadReport {
    /// Share that it was told to keep to.
    pub asked: u64,
    /// Share that it took, as far as it knows.
    pub estimated: u64,
    /// Functions that were called.
    pub functions: u64,
    /// Number of them that were left out at times.
    pub left_out: u64,
    /// Calls of all.
    pub calls: u64,
    /// Calls that nobody looked at.
    pub missed: u64,
    /// Mean length in nanoseconds of the calls of the slowest function that was left out.
    pub longest: u64,
    /// Whether it was left out who holds locks, from some time on.
    pub holders: bool,
    /// Whether waits for locks were left out as well.
    pub waits: bool,
    /// Whether scheduler events were.
    pub sched: bool,
    /// Functions of which most calls are missing.
    pub most: Vec<OmittedFunction>,
}

impl OverheadReport {
    /// Reads it.
    ///
    /// # Errors
    /// When it is cut off.
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
