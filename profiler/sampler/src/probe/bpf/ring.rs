//! Reads a ring of records that programs fill in the kernel, without waiting.
//!
//! Contains no knowledge of what records hold.

use std::io;
use std::sync::atomic::Ordering;

use super::call::{SharedMemory, page_size};
use super::map::{Map, MapKind};

/// Bits in a record's length: still being written; to be passed over.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes before each record: its length, and where it is.
const HEADER: u64 = 8;

/// A ring, and how far it was read.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// One page with our position.
    consumer: SharedMemory,
    /// One page with the kernel's position, then the records, twice one behind the other.
    producer: SharedMemory,
    page: usize,
    size: u64,
}

impl Ring {
    /// Creates a ring of so many bytes: a power of two and at least a page.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(bytes: u32) -> io::Result<Ring> {
        let map = Map::create(MapKind::Ring, "lw_requests", bytes)?;
        let page = page_size();
        let consumer = SharedMemory::of(map.descriptor(), 0, page, true)?;
        let producer = SharedMemory::of(map.descriptor(), page, page + 2 * bytes as usize, false)?;
        Ok(Ring { map, consumer, producer, page, size: u64::from(bytes) })
    }

    /// Returns the number by which programs name the ring.
    pub fn number(&self) -> i32 {
        self.map.number()
    }

    /// Passes the records that are there to `each`, in the order in which they were written.
    pub fn read(&mut self, mut each: impl FnMut(&[u8])) {
        /// No record is longer: programs write at most their stack.
        const LONGEST: usize = 512;
        let mut record = [0; LONGEST];
        let mut position = self.consumer.double(0).load(Ordering::Relaxed);
        let end = self.producer.double(0).load(Ordering::Acquire);
        while position < end {
            let at = self.page + (position % self.size) as usize;
            // Length and flags are the lower half; the kernel clears `BUSY` last.
            let length = self.producer.double(at).load(Ordering::Acquire) as u32;
            if length & BUSY != 0 {
                break;
            }
            let bytes = (length & !DISCARDED) as usize;
            let is_whole = bytes <= LONGEST && self.producer.copy(at + HEADER as usize, &mut record[..bytes]);
            if is_whole && length & DISCARDED == 0 {
                each(&record[..bytes]);
            }
            position += (HEADER + bytes as u64).next_multiple_of(8);
            self.consumer.double(0).store(position, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_ring_is_empty() {
        let mut ring = Ring::create(1 << 16).unwrap();
        ring.read(|record| panic!("{record:?}"));
    }

    #[test]
    fn the_size_of_a_ring_is_a_power_of_two() {
        assert!(Ring::create(5000).is_err());
    }
}
