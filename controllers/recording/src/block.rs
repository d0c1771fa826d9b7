//! Blocks of a recording: framing, checksums, and the mark at the end.

use super::bytes::{Bytes, DecodeError, checksum, put};
use leeward_core::units::Time;

/// The first bytes of a recording, before the version and the blocks.
pub const MAGIC: [u8; 8] = *b"LEEWREC\n";
/// The version that this crate writes and reads.
pub(super) const VERSION: u16 = 3;
/// The oldest readable version: it has no methods, and is otherwise the same.
pub(super) const OLDEST: u16 = 2;
/// Length of magic and version.
pub(super) const PREAMBLE: usize = 10;
/// Length of kind, length and checksum.
pub(super) const FRAME: usize = 9;
/// Maximum length of a block's payload.
pub(super) const MAX_BLOCK_LEN: u32 = 1 << 20;

/// Content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Header,
    Entries,
    End,
}

impl BlockKind {
    fn code(self) -> u8 {
        match self {
            BlockKind::Header => 1,
            BlockKind::Entries => 2,
            BlockKind::End => 3,
        }
    }
}

/// A part of a recording. A plant writes blocks in order and whole: first [`Block::prefix`], then
/// [`Block::payload`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub(super) kind: BlockKind,
    pub(super) payload: Vec<u8>,
}

impl Block {
    /// Returns the bytes before the payload. Computes a checksum over the whole payload, so it does
    /// not belong on a core's thread.
    pub fn prefix(&self) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(PREAMBLE + FRAME);
        if self.kind == BlockKind::Header {
            prefix.extend_from_slice(&MAGIC);
            prefix.extend_from_slice(&VERSION.to_le_bytes());
        }
        let kind = [self.kind.code()];
        prefix.extend_from_slice(&kind);
        prefix.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        prefix.extend_from_slice(&checksum(&kind, &self.payload).to_le_bytes());
        prefix
    }

    /// Content of the block.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the buffer for reuse.
    pub fn into_buffer(self) -> Vec<u8> {
        self.payload
    }
}

/// Description of the payload that follows, from a block's frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: BlockKind,
    pub(super) length: u32,
    checksum: u32,
}

impl Frame {
    pub(super) fn read(frame: &[u8; FRAME]) -> Result<Frame, DecodeError> {
        let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = *frame;
        let kind = match kind {
            1 => BlockKind::Header,
            2 => BlockKind::Entries,
            3 => BlockKind::End,
            _ => return Err("there is no such kind of block"),
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length > MAX_BLOCK_LEN {
            return Err("a block is longer than 1 MiB");
        }
        Ok(Frame { kind, length, checksum: u32::from_le_bytes([c0, c1, c2, c3]) })
    }

    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        checksum(&[self.kind.code()], payload) == self.checksum
    }
}

/// Reason for the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The recording was ended on purpose and has every call.
    Complete,
    /// The sink was full. The recording has every call up to then; the plant went on without
    /// recording.
    Overrun,
    /// The controller panicked.
    Panicked,
}

impl EndReason {
    /// Returns the reason as a text for people.
    pub fn description(self) -> &'static str {
        match self {
            EndReason::Complete => "complete",
            EndReason::Overrun => "the disk was slower than the events: only the beginning was recorded",
            EndReason::Panicked => "the controller panicked: only the time before was recorded",
        }
    }
}

/// The mark at the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Reason of the end.
    pub reason: EndReason,
    /// Entries before the mark.
    pub entries: u64,
    /// Time of the last recorded call before the end.
    pub last: Time,
}

impl End {
    pub(super) fn block(self) -> Block {
        let mut payload = vec![match self.reason {
            EndReason::Complete => 0,
            EndReason::Overrun => 1,
            EndReason::Panicked => 2,
        }];
        put(&mut payload, self.entries);
        put(&mut payload, self.last.0);
        Block { kind: BlockKind::End, payload }
    }

    pub(super) fn read(payload: &[u8]) -> Result<End, DecodeError> {
        let mut bytes = Bytes::new(payload);
        let reason = match bytes.byte()? {
            0 => EndReason::Complete,
            1 => EndReason::Overrun,
            2 => EndReason::Panicked,
            _ => return Err("there is no such reason to end"),
        };
        let end = End { reason, entries: bytes.number()?, last: Time(bytes.number()?) };
        if bytes.remaining() > 0 { Err("there is more than an end") } else { Ok(end) }
    }
}
