//! Reading a recording piece by piece. For any bytes, memory is bounded by one block, and an error
//! states the position up to which the recording is valid.

use super::block::{Block, BlockKind, End, EndReason, FRAME, Frame, MAGIC, MAX_BLOCK_LEN, OLDEST, PREAMBLE, VERSION};
use super::bytes::{Bytes, DecodeError};
use super::codec::Codec;
use super::entry::Entry;
use super::header::Header;
use leeward_core::units::Time;

/// Part of a recording: a header, entries, an end.
#[allow(clippy::large_enum_variant, reason = "headers are rare, and a box would be an allocation for every entry")]
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "readers are not hot, and an entry allocates nothing")]
pub enum Item {
    /// The first item.
    Header(Header),
    /// Any number of entries, after the header.
    Entry(Entry),
    /// The last item. A recording without it was truncated.
    End(End),
}

/// Error: the bytes are no whole recording. All items read before the error are valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are no recording.
    #[error("not a recording of leeward: it does not begin like one")]
    NotARecording,
    /// The recording has another version of the format.
    #[error("a recording of format {found}; this version reads the formats {OLDEST} to {VERSION}")]
    Version {
        /// Version in the recording.
        found: u16,
    },
    /// The recording is damaged, or other software wrote it.
    #[error("damaged at byte {offset}, after {entries} whole entries: {problem}")]
    Damaged {
        /// Offset of the damaged block.
        offset: u64,
        /// Entries before the damage.
        entries: u64,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The bytes end without the end mark: the recording process was killed, or the file was
    /// truncated.
    #[error("cut off at byte {offset}, after {entries} whole entries")]
    Truncated {
        /// Number of bytes.
        offset: u64,
        /// Entries before the end.
        entries: u64,
    },
}

/// Reader of a recording. Bytes go in by [`Reader::spare_capacity`] and [`Reader::advance`], items
/// come out of [`Reader::next_item`].
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    /// Filled bytes of the buffer.
    filled_len: usize,
    stage: Stage,
    codec: Codec,
    /// Offset of the piece in the buffer.
    offset: u64,
    entries: u64,
}

#[derive(Clone, Debug)]
enum Stage {
    Preamble,
    Frame {
        first: bool,
    },
    Payload(Frame),
    /// The buffer holds a valid block of entries, with `read` bytes decoded.
    Entries {
        read: usize,
    },
    Ended,
    Failed(ReadError),
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new()
    }
}

impl Reader {
    /// Creates a reader at the start of a recording.
    pub fn new() -> Self {
        Reader {
            buffer: vec![0; PREAMBLE],
            filled_len: 0,
            stage: Stage::Preamble,
            codec: Codec::default(),
            offset: 0,
            entries: 0,
        }
    }

    /// Iterates over the items of a whole recording in memory. The first error is the last item.
    pub fn items(mut bytes: &[u8]) -> impl Iterator<Item = Result<Item, ReadError>> {
        let mut reader = Reader::new();
        let mut over = false;
        std::iter::from_fn(move || {
            while !over {
                match reader.next_item() {
                    Ok(Some(item)) => return Some(Ok(item)),
                    Ok(None) if bytes.is_empty() => {
                        over = true;
                        return reader.finish().err().map(Err);
                    }
                    Ok(None) => {
                        let spare = reader.spare_capacity();
                        let count = spare.len().min(bytes.len());
                        spare[..count].copy_from_slice(&bytes[..count]);
                        bytes = &bytes[count..];
                        reader.advance(count);
                    }
                    Err(error) => {
                        over = true;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }

    /// Buffer for the next bytes: never empty after [`Reader::next_item`] returned `None`.
    pub fn spare_capacity(&mut self) -> &mut [u8] {
        match self.stage {
            // One byte, to detect data after the end.
            Stage::Ended => &mut self.buffer[..1],
            Stage::Entries { .. } | Stage::Failed(_) => &mut [],
            _ => &mut self.buffer[self.filled_len..],
        }
    }

    /// Marks `count` bytes of [`Reader::spare_capacity`] as filled.
    pub fn advance(&mut self, count: usize) {
        if let Stage::Ended = self.stage {
            if count > 0 {
                let _ = self.fail("something follows the end");
            }
            return;
        }
        self.filled_len = self.buffer.len().min(self.filled_len + count);
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The time of the last entry so far.
    pub fn time(&self) -> Time {
        self.codec.time()
    }

    /// Returns the next item; `None` if it needs more bytes.
    ///
    /// # Errors
    /// See [`ReadError`]. An error is final.
    pub fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        loop {
            match &self.stage {
                Stage::Failed(error) => return Err(error.clone()),
                Stage::Entries { read } => {
                    let mut bytes = Bytes::new(&self.buffer[*read..]);
                    if bytes.remaining() == 0 {
                        self.expect(FRAME, Stage::Frame { first: false });
                        continue;
                    }
                    match self.codec.decode(&mut bytes) {
                        Ok(entry) => {
                            self.stage = Stage::Entries { read: self.buffer.len() - bytes.remaining() };
                            self.entries += 1;
                            return Ok(Some(Item::Entry(entry)));
                        }
                        Err(problem) => return Err(self.fail(problem)),
                    }
                }
                _ if self.filled_len < self.buffer.len() => return Ok(None),
                Stage::Preamble => self.preamble()?,
                Stage::Frame { first } => {
                    let first = *first;
                    self.frame(first)?;
                }
                Stage::Payload(frame) => {
                    let frame = *frame;
                    if let Some(item) = self.payload(frame)? {
                        return Ok(Some(item));
                    }
                }
                Stage::Ended => return Ok(None),
            }
        }
    }

    /// Checks that the bytes so far are a whole recording.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn finish(&self) -> Result<(), ReadError> {
        match &self.stage {
            Stage::Ended => Ok(()),
            Stage::Failed(error) => Err(error.clone()),
            Stage::Preamble if self.filled_len == 0 || !self.has_magic_prefix() => Err(ReadError::NotARecording),
            _ => Err(ReadError::Truncated { offset: self.offset + self.filled_len as u64, entries: self.entries }),
        }
    }

    /// Whether the present part of the magic is right.
    fn has_magic_prefix(&self) -> bool {
        let length = self.filled_len.min(MAGIC.len());
        self.buffer[..length] == MAGIC[..length]
    }

    fn preamble(&mut self) -> Result<(), ReadError> {
        let (magic, version) = self.buffer.split_at(MAGIC.len());
        if magic != MAGIC {
            self.stage = Stage::Failed(ReadError::NotARecording);
            return Err(ReadError::NotARecording);
        }
        let found = u16::from_le_bytes([version[0], version[1]]);
        if !(OLDEST..=VERSION).contains(&found) {
            self.stage = Stage::Failed(ReadError::Version { found });
            return Err(ReadError::Version { found });
        }
        self.expect(FRAME, Stage::Frame { first: true });
        Ok(())
    }

    fn frame(&mut self, first: bool) -> Result<(), ReadError> {
        let mut bytes = [0; FRAME];
        bytes.copy_from_slice(&self.buffer);
        let frame = Frame::read(&bytes).map_err(|problem| self.fail(problem))?;
        if first != (frame.kind == BlockKind::Header) {
            return Err(self.fail("its header is not where it should be"));
        }
        self.expect(frame.length.min(MAX_BLOCK_LEN) as usize, Stage::Payload(frame));
        Ok(())
    }

    fn payload(&mut self, frame: Frame) -> Result<Option<Item>, ReadError> {
        if !frame.fits(&self.buffer) {
            return Err(self.fail("a block does not have the checksum it says"));
        }
        match frame.kind {
            BlockKind::Header => {
                let header = Header::read(&self.buffer).map_err(|problem| self.fail(problem))?;
                self.expect(FRAME, Stage::Frame { first: false });
                Ok(Some(Item::Header(header)))
            }
            BlockKind::Entries => {
                self.stage = Stage::Entries { read: 0 };
                Ok(None)
            }
            BlockKind::End => {
                let end = End::read(&self.buffer).map_err(|problem| self.fail(problem))?;
                if end.entries != self.entries {
                    return Err(self.fail("its end counts other entries than there are"));
                }
                self.expect(1, Stage::Ended);
                Ok(Some(Item::End(end)))
            }
        }
    }

    /// Moves on to the next piece of `count` bytes.
    fn expect(&mut self, count: usize, stage: Stage) {
        self.offset += self.filled_len as u64;
        self.filled_len = 0;
        self.buffer.clear();
        self.buffer.resize(count, 0);
        self.stage = stage;
    }

    fn fail(&mut self, problem: DecodeError) -> ReadError {
        let error = ReadError::Damaged { offset: self.offset, entries: self.entries, problem };
        self.stage = Stage::Failed(error.clone());
        error
    }
}

/// Assembles a recording from entries, for tests of readers.
impl Block {
    /// Returns the bytes of a whole recording of `entries`.
    pub fn recording(header: &Header, entries: &[Entry]) -> Vec<u8> {
        let mut codec = Codec::default();
        let mut payload = Vec::new();
        let mut blocks = vec![header.block()];
        for entry in entries {
            codec.encode(entry, &mut payload);
            if payload.len() > MAX_BLOCK_LEN as usize / 2 {
                blocks.push(Block { kind: BlockKind::Entries, payload: std::mem::take(&mut payload) });
            }
        }
        blocks.push(Block { kind: BlockKind::Entries, payload });
        let end = End { reason: EndReason::Complete, entries: entries.len() as u64, last: codec.time() };
        blocks.push(end.block());
        blocks.iter().flat_map(|block| [block.prefix(), block.payload().to_vec()].concat()).collect()
    }
}
