//! Reading a recording piece by piece. Whatever the bytes are, memory is bounded by one block, and an error says how far
//! everything was well.

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
    /// First.
    Header(Header),
    /// Then any number of these.
    Entry(Entry),
    /// Last. A recording without it was cut off.
    End(End),
}

/// Bytes that are no whole recording. Everything that was read before is sound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Something else altogether.
    #[error("not a recording of leeward: it does not begin like one")]
    NotARecording,
    /// Of another version of the format.
    #[error("a recording of format {found}; this version reads the formats {OLDEST} to {VERSION}")]
    Version {
        /// The version it says.
        found: u16,
    },
    /// Damaged, or written by something that is not us.
    #[error("damaged at byte {offset}, after {entries} whole entries: {problem}")]
    Damaged {
        /// Where the block begins that is damaged.
        offset: u64,
        /// Entries before the damage.
        entries: u64,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The bytes end without the mark of an end: the recording process was killed, or the file was cut.
    #[error("cut off at byte {offset}, after {entries} whole entries")]
    Truncated {
        /// How many bytes there are.
        offset: u64,
        /// Entries before the end.
        entries: u64,
    },
}

/// Reads a recording. Bytes go in by [`Reader::spare`] and [`Reader::filled`], items come out of [`Reader::next_item`].
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are filled.
    filled_len: usize,
    stage: Stage,
    codec: Codec,
    /// Where the piece in the buffer begins.
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
    /// The buffer holds a sound block of entries, of which so many bytes were read.
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
    /// A reader at a recording's beginning.
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

    /// The items of a recording that is in memory as a whole. The first error is the last item.
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

    /// Room for the bytes that come next: never empty after [`Reader::next_item`] has said `None`.
    pub fn spare_capacity(&mut self) -> &mut [u8] {
        match self.stage {
            // To notice whatever follows an end.
            Stage::Ended => &mut self.buffer[..1],
            Stage::Entries { .. } | Stage::Failed(_) => &mut [],
            _ => &mut self.buffer[self.filled_len..],
        }
    }

    /// So many bytes were put into [`Reader::spare`].
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

    /// The next item; `None` if more bytes are needed for it.
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

    /// There are no more bytes: whether this was a whole recording.
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

    /// Whether what there is of the magic is right.
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

    /// Turns to the next piece, of so many bytes.
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

/// Puts a recording together from entries, for those who test readers.
impl Block {
    /// The bytes of a whole recording of `entries`.
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
