//! Tests with rings that a test fills.
//!
//! Contains no test of a record's fields.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// A ring in memory; the writer respects what was not released.
#[derive(Debug, Default)]
struct Memory {
    data: Vec<u8>,
    head: u64,
    tail: u64,
}

#[derive(Clone, Debug)]
struct FakeRing(Rc<RefCell<Memory>>);

impl FakeRing {
    fn new(size: usize) -> FakeRing {
        FakeRing(Rc::new(RefCell::new(Memory { data: vec![0; size], head: 0, tail: 0 })))
    }

    fn write(&self, bytes: &[u8]) -> bool {
        let memory = &mut *self.0.borrow_mut();
        let size = memory.data.len();
        if memory.head - memory.tail + bytes.len() as u64 > size as u64 {
            return false;
        }
        for byte in bytes {
            memory.data[(memory.head % size as u64) as usize] = *byte;
            memory.head += 1;
        }
        true
    }
}

impl RingData for FakeRing {
    fn size(&self) -> usize {
        self.0.borrow().data.len()
    }

    fn head(&self) -> u64 {
        self.0.borrow().head
    }

    fn release(&self, tail: u64) {
        let memory = &mut *self.0.borrow_mut();
        assert!(tail >= memory.tail && tail <= memory.head);
        memory.tail = tail;
    }

    fn copy(&self, position: u64, into: &mut [u8]) {
        let memory = self.0.borrow();
        assert!(position >= memory.tail && position + into.len() as u64 <= memory.head, "unreadable");
        for (offset, byte) in into.iter_mut().enumerate() {
            *byte = memory.data[((position + offset as u64) % memory.data.len() as u64) as usize];
        }
    }
}

/// A record of kind 99 whose end holds a time, as the kernel's records do.
fn record(time: u64, padding: usize) -> Vec<u8> {
    let size = 8 + 32 + padding * 8;
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&99u32.to_le_bytes());
    bytes[6..8].copy_from_slice(&(size as u16).to_le_bytes());
    bytes[size - 24..size - 16].copy_from_slice(&time.to_le_bytes());
    bytes
}

fn time_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[record.len() - 24..][..8].try_into().unwrap())
}

proptest! {
    /// Each record comes once, in the order of time, however rings wrap around and fill.
    #[test]
    fn records_are_merged_by_time(
        steps in prop::collection::vec((0usize..3, 0usize..5, 1u64..50), 1..200),
        polls in prop::collection::vec(1usize..20, 1..200),
    ) {
        let rings: Vec<FakeRing> = (0..3).map(|_| FakeRing::new(256)).collect();
        let mut set = RingSet::new(rings.clone());
        let (mut time, mut expected, mut found) = (0, Vec::new(), Vec::new());
        let mut polls = polls.iter().cycle();
        let mut wait = 1;
        for (ring, padding, step) in steps {
            time += step;
            if rings[ring].write(&record(time, padding)) {
                expected.push(time);
            }
            wait -= 1;
            if wait == 0 {
                set.read(time, |_, bytes| found.push(time_of(bytes)));
                wait = *polls.next().unwrap();
            }
        }
        set.read(u64::MAX, |_, bytes| found.push(time_of(bytes)));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(set.damaged(), 0);
    }

    /// Bytes of any kind neither panic nor keep the reader in a loop.
    #[test]
    fn arbitrary_bytes_are_survived(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let ring = FakeRing::new(512);
        let mut set = RingSet::new([ring.clone()]);
        for chunk in chunks {
            ring.write(&chunk);
            let mut bytes = 0;
            set.read(u64::MAX, |_, record| bytes += record.len());
            prop_assert!(bytes <= 512);
        }
    }
}

#[test]
fn later_records_stay_in_the_ring() {
    let ring = FakeRing::new(1024);
    let mut set = RingSet::new([ring.clone()]);
    for time in [10, 20, 30] {
        ring.write(&record(time, 0));
    }
    let mut found = Vec::new();
    set.read(20, |_, bytes| found.push(time_of(bytes)));
    assert_eq!(found, [10, 20]);
    set.read(30, |_, bytes| found.push(time_of(bytes)));
    assert_eq!(found, [10, 20, 30]);
}
