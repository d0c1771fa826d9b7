//! Reads the kernel's rings, one per CPU, in the order of time.
//!
//! Does not contain the fields of records.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::parse::{HEADER, Header};
use super::sys::SharedRing;

/// Bytes after which a ring's space is given back while it is being read.
const RELEASE_STEP: u64 = 1 << 16;

/// A ring that somebody else fills.
pub(crate) trait RingData {
    /// Bytes of data, a power of two.
    fn size(&self) -> usize;
    /// Position up to which data can be read.
    fn head(&self) -> u64;
    /// Gives data before a position back.
    fn release(&self, tail: u64);
    /// Copies data at a position.
    fn copy(&self, position: u64, into: &mut [u8]);
}

impl RingData for SharedRing {
    fn size(&self) -> usize {
        self.size()
    }

    fn head(&self) -> u64 {
        self.head()
    }

    fn release(&self, tail: u64) {
        self.release(tail);
    }

    fn copy(&self, position: u64, into: &mut [u8]) {
        self.copy(position, into);
    }
}

/// A ring, and how far it was read.
#[derive(Debug)]
struct Cursor<R> {
    ring: R,
    tail: u64,
    released: u64,
    head: u64,
}

/// The next record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NextRecord {
    time: u64,
    ring: usize,
}

/// All rings.
#[derive(Debug)]
pub(crate) struct RingSet<R> {
    cursors: Vec<Cursor<R>>,
    record: Vec<u8>,
    damaged: u64,
}

impl<R: RingData> RingSet<R> {
    pub(crate) fn new(rings: impl IntoIterator<Item = R>) -> RingSet<R> {
        let cursors = rings.into_iter().map(|ring| Cursor { ring, tail: 0, released: 0, head: 0 });
        RingSet { cursors: cursors.collect(), record: Vec::new(), damaged: 0 }
    }

    /// Returns how often a ring had to be emptied unread, since a record's length could not be.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Passes on records up to a time, ordered by time as far as each ring is.
    pub(crate) fn read(&mut self, until: u64, mut report: impl FnMut(Header, &[u8])) {
        let mut queue = BinaryHeap::new();
        for index in 0..self.cursors.len() {
            let cursor = &mut self.cursors[index];
            cursor.head = cursor.ring.head();
            queue.extend(self.peek(index).map(|(_, time)| Reverse(NextRecord { time, ring: index })));
        }
        while let Some(Reverse(NextRecord { time, ring })) = queue.pop() {
            if time > until {
                break;
            }
            let Some((header, _)) = self.peek(ring) else { continue };
            let cursor = &mut self.cursors[ring];
            self.record.resize(usize::from(header.size), 0);
            cursor.ring.copy(cursor.tail, &mut self.record);
            cursor.tail += u64::from(header.size);
            report(header, &self.record);
            if cursor.tail - cursor.released >= RELEASE_STEP {
                cursor.give_back();
            }
            queue.extend(self.peek(ring).map(|(_, time)| Reverse(NextRecord { time, ring })));
        }
        self.cursors.iter_mut().for_each(Cursor::give_back);
    }

    /// Header and time of a ring's next record.
    fn peek(&mut self, index: usize) -> Option<(Header, u64)> {
        let cursor = &mut self.cursors[index];
        let available = cursor.head.saturating_sub(cursor.tail);
        if available == 0 {
            return None;
        }
        let mut bytes = [0; HEADER];
        let header = (available >= HEADER as u64 && available <= cursor.ring.size() as u64).then(|| {
            cursor.ring.copy(cursor.tail, &mut bytes);
            Header::parse(bytes).filter(|header| u64::from(header.size) <= available)
        });
        let Some(header) = header.flatten() else {
            self.damaged += 1;
            cursor.tail = cursor.head;
            return None;
        };
        let mut time = [0; 8];
        if let Some(offset) = header.time_offset() {
            cursor.ring.copy(cursor.tail + offset as u64, &mut time);
        }
        Some((header, u64::from_le_bytes(time)))
    }
}

impl<R: RingData> Cursor<R> {
    fn give_back(&mut self) {
        if self.released != self.tail {
            self.ring.release(self.tail);
            self.released = self.tail;
        }
    }
}

#[cfg(test)]
mod tests;
