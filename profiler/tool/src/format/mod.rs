//! The bytes of a trace (`docs/trace-format.md`), read and written. Does not open files or
//! interpret events.

pub mod block;
pub mod context;
pub mod event;
pub mod meta;
mod payload;
pub mod queue;
pub mod request_totals;
mod segments;
mod short_event;
pub mod varint;
pub mod write;

pub use event::{Event, EventKind, ObjectKind};

/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"LEEWTRC\n";
/// The version that is read and written.
pub const VERSION: u16 = 1;
/// Bytes before the first block.
pub const PREAMBLE: usize = 16;
/// The first bytes of every block.
pub const SYNC: [u8; 4] = [0xA7, 0x4C, 0x57, 0x42];
/// Bytes of a block before its payload.
pub const BLOCK_HEADER: usize = 16;
/// Length of the longest payload, in bytes.
pub const PAYLOAD_MAX: usize = 1 << 20;
/// Length of the longest text, in bytes.
pub const TEXT_MAX: usize = 4096;

/// Kinds of blocks.
pub mod kind {
    /// Description of the recording, and the clock.
    pub const HEADER: u8 = 1;
    /// Executable files in memory.
    pub const MODULES: u8 = 2;
    /// Threads.
    pub const THREADS: u8 = 3;
    /// Events of one thread.
    pub const EVENTS: u8 = 4;
    /// A pair of clocks.
    pub const CLOCK: u8 = 5;
    /// Messages to the user.
    pub const NOTE: u8 = 6;
    /// The end of a segment.
    pub const END: u8 = 7;
    /// Stops and coarse times of the recording's clock.
    pub const PACE: u8 = 8;
    /// Texts of requests' labels.
    pub const LABELS: u8 = 9;
    /// Overhead of the recording, and omissions to keep within its share of the CPU.
    pub const SHARE: u8 = 10;
    /// Counts and latencies of all requests, reported or not.
    pub const REQUESTS: u8 = 11;
    /// Stacks of threads where requests began to wait.
    pub const STACKS: u8 = 12;
}
