//! Reads blocks from a stream of bytes: complete and correct ones, and the size of damaged ranges
//! between them.
//!
//! Does not interpret the blocks' contents.

use std::io::{self, Read};

use super::{BLOCK_HEADER, PAYLOAD_MAX, PREAMBLE, SYNC};

/// Bytes per read.
const READ: usize = 1 << 18;
/// Limit of candidate bytes that are checked in one damaged range; beyond it the rest of the
/// segment is skipped.
///
/// Without a limit, a range that imitates blocks would cost the square of its length.
const SCAN_MAX: usize = 256 << 20;

/// Next item of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A complete block with a correct checksum.
    Block {
        /// Offset of the block in the file.
        offset: u64,
        /// The block's kind.
        kind: u8,
        /// Content of the block.
        payload: &'a [u8],
    },
    /// Bytes that are not part of a block.
    Damage(DamagedRange),
}

/// A range of a segment that is not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Offset of the range in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The range is the start of a block at which the file ends.
    pub truncated: bool,
}

/// Reads the blocks of one segment, after its preamble.
#[derive(Debug)]
pub struct BlockReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Index in `buffer` of the first byte that was not returned, and its offset in the file.
    begin: usize,
    offset: u64,
    /// Bytes of the last returned block.
    handed: usize,
    ended: bool,
}

enum Candidate {
    Whole {
        kind: u8,
        length: usize,
    },
    /// The file ends within it.
    Truncated,
    Invalid,
}

impl<R: Read> BlockReader<R> {
    /// Continues reading from `source`; its next byte is at `offset` of the file ([`PREAMBLE`] at
    /// first).
    pub fn new(source: R, offset: u64) -> BlockReader<R> {
        BlockReader { source, buffer: Vec::new(), begin: 0, offset, handed: 0, ended: false }
    }

    /// Creates a reader whose source is after the preamble.
    pub fn after_preamble(source: R) -> BlockReader<R> {
        BlockReader::new(source, PREAMBLE as u64)
    }

    /// Returns the next block or damaged range; `None` at the end.
    ///
    /// # Errors
    /// Reading fails.
    pub fn next_item(&mut self) -> io::Result<Option<Item<'_>>> {
        let handed = std::mem::take(&mut self.handed);
        self.pass(handed);
        if self.fill(1)? == 0 {
            return Ok(None);
        }
        let mut scan_left = SCAN_MAX;
        match self.candidate(0, &mut scan_left)? {
            Candidate::Whole { kind, length } => return Ok(Some(self.hand_out(kind, length))),
            Candidate::Truncated => {
                // The file ends inside an apparent block. If the block's length is wrong, complete
                // blocks may follow.
                let damaged = self.seek(true, &mut scan_left)?;
                return Ok(Some(Item::Damage(damaged)));
            }
            Candidate::Invalid => {}
        }
        let damaged = self.seek(false, &mut scan_left)?;
        Ok(Some(Item::Damage(damaged)))
    }

    /// Skips bytes up to the next complete block, or the end.
    fn seek(&mut self, cut: bool, scan_left: &mut usize) -> io::Result<DamagedRange> {
        let from = self.offset;
        let mut at = 1;
        loop {
            // Drops examined bytes to keep the buffer short.
            if at >= READ {
                self.pass(at);
                at = 0;
            }
            let available = self.fill(at + SYNC.len())?;
            if available < at + SYNC.len() || *scan_left == 0 {
                // No further block: the rest is damage, including bytes that can't be read.
                let gave_up = *scan_left == 0;
                self.pass(available);
                while self.fill(READ)? > 0 {
                    let rest = self.buffer.len() - self.begin;
                    self.pass(rest);
                }
                return Ok(DamagedRange { offset: from, bytes: self.offset - from, truncated: cut && !gave_up });
            }
            let window = &self.buffer[self.begin + at..];
            match window.windows(SYNC.len()).position(|bytes| bytes == SYNC) {
                None => at += window.len() - (SYNC.len() - 1),
                Some(index) => {
                    at += index;
                    if let Candidate::Whole { .. } = self.candidate(at, scan_left)? {
                        self.pass(at);
                        return Ok(DamagedRange { offset: from, bytes: self.offset - from, truncated: false });
                    }
                    at += 1;
                }
            }
        }
    }

    /// Checks for a block `at` bytes ahead.
    fn candidate(&mut self, at: usize, scan_left: &mut usize) -> io::Result<Candidate> {
        let available = self.fill(at + BLOCK_HEADER)?.saturating_sub(at);
        let bytes = &self.buffer[self.begin + at..];
        if available < BLOCK_HEADER {
            let begins = bytes.len() < SYNC.len() && SYNC.starts_with(bytes) || bytes.starts_with(&SYNC);
            return Ok(if begins { Candidate::Truncated } else { Candidate::Invalid });
        }
        let word = |from: usize| u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
        let (length, checksum) = (word(8) as usize, word(12));
        if bytes[..4] != SYNC || bytes[5..8] != [0; 3] || length > PAYLOAD_MAX {
            return Ok(Candidate::Invalid);
        }
        let kind = bytes[4];
        if self.fill(at + BLOCK_HEADER + length)? < at + BLOCK_HEADER + length {
            return Ok(Candidate::Truncated);
        }
        let bytes = &self.buffer[self.begin + at..];
        *scan_left = scan_left.saturating_sub(length + BLOCK_HEADER);
        if checksum_of(&bytes[4..12], &bytes[BLOCK_HEADER..BLOCK_HEADER + length]) == checksum {
            Ok(Candidate::Whole { kind, length })
        } else {
            Ok(Candidate::Invalid)
        }
    }

    fn hand_out(&mut self, kind: u8, length: usize) -> Item<'_> {
        self.handed = BLOCK_HEADER + length;
        let payload = &self.buffer[self.begin + BLOCK_HEADER..self.begin + BLOCK_HEADER + length];
        Item::Block { offset: self.offset, kind, payload }
    }

    fn pass(&mut self, count: usize) {
        self.begin += count;
        self.offset += count as u64;
    }

    /// Buffers `needed` bytes if the file has them; returns the number of buffered bytes.
    fn fill(&mut self, needed: usize) -> io::Result<usize> {
        while self.buffer.len() - self.begin < needed && !self.ended {
            if self.begin > 0 {
                self.buffer.drain(..self.begin);
                self.begin = 0;
            }
            let more = READ.max(needed) as u64;
            if self.source.by_ref().take(more).read_to_end(&mut self.buffer)? == 0 {
                self.ended = true;
            }
        }
        Ok(self.buffer.len() - self.begin)
    }
}

/// Returns the checksum of a block: over bytes 4 to 11 of its header, then the payload.
pub fn checksum_of(head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), payload)
}

/// Appends a complete block.
///
/// # Panics
/// If the payload is longer than [`PAYLOAD_MAX`].
pub fn put_block(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    assert!(payload.len() <= PAYLOAD_MAX, "a payload is bounded");
    let mut head = [kind, 0, 0, 0, 0, 0, 0, 0];
    head[4..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&SYNC);
    out.extend_from_slice(&head);
    out.extend_from_slice(&checksum_of(&head, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Vec<(u8, Vec<u8>)>, Vec<DamagedRange>) {
        let (mut blocks, mut damage) = (Vec::new(), Vec::new());
        let mut reader = BlockReader::new(bytes, 0);
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                Item::Block { kind, payload, .. } => blocks.push((kind, payload.to_vec())),
                Item::Damage(damaged) => damage.push(damaged),
            }
        }
        (blocks, damage)
    }

    fn three() -> (Vec<u8>, usize, usize) {
        let mut bytes = Vec::new();
        put_block(&mut bytes, 4, b"first");
        let second = bytes.len();
        put_block(&mut bytes, 5, &vec![7; 300_000]);
        let third = bytes.len();
        put_block(&mut bytes, 6, b"");
        (bytes, second, third)
    }

    #[test]
    fn blocks_round_trip() {
        let (bytes, ..) = three();
        let (blocks, damage) = read(&bytes);
        assert_eq!(
            blocks.iter().map(|(kind, payload)| (*kind, payload.len())).collect::<Vec<_>>(),
            [(4, 5), (5, 300_000), (6, 0)]
        );
        assert!(damage.is_empty());
    }

    #[test]
    fn a_damaged_byte_loses_only_its_block() {
        let (bytes, second, third) = three();
        for at in (0..200).map(|step| second + step * 1499).chain(second..second + BLOCK_HEADER) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let (blocks, damage) = read(&bytes);
            assert_eq!(blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [4, 6], "byte {at}");
            let lost = DamagedRange { offset: second as u64, bytes: (third - second) as u64, truncated: false };
            assert_eq!(damage, [lost]);
        }
    }

    #[test]
    fn a_truncated_file_gives_its_complete_blocks() {
        let (bytes, second, third) = three();
        for length in [second + 1, second + 5, second + 20, third - 1, third + 3] {
            let (blocks, damage) = read(&bytes[..length]);
            let whole = if length < third { 1 } else { 2 };
            assert_eq!(blocks.len(), whole, "{length}");
            assert!(damage.len() == 1 && damage[0].truncated, "{length}: {damage:?}");
        }
    }

    #[test]
    fn forged_sync_marks_are_skipped_quickly() {
        let mut bytes = Vec::new();
        for _ in 0..100_000 {
            bytes.extend_from_slice(&SYNC);
            bytes.extend_from_slice(&[4, 0, 0, 0, 0xFF, 0xFF, 0x0F, 0, 1, 2, 3, 4]);
        }
        let (blocks, damage) = read(&bytes);
        assert!(blocks.is_empty() && damage.len() == 1);
        assert_eq!(damage[0].bytes, bytes.len() as u64);
    }
}
