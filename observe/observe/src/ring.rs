//! Ring of recent decisions, which can be looked up by number: records of 64 bytes, written and
//! read without locks.
//!
//! If two threads write the same slot at once, one record is lost. Does not contain the decision
//! itself.

use crate::decision::{Decision, DecisionId, WORDS};
use crate::sync::{AtomicU64, Ordering, fence};

/// Number of a slot while a thread writes it.
const WRITING: u64 = u64::MAX;

/// Slot of 64 bytes: the number of its record (0: none yet), and the record.
#[repr(align(64))]
struct RingSlot {
    id: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Ring of the newest decisions.
pub struct DecisionRing {
    slots: Vec<RingSlot>,
    last: AtomicU64,
}

impl DecisionRing {
    /// Makes a ring of this many records, at least one.
    pub fn new(slots: usize) -> Self {
        let slot = || RingSlot { id: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        DecisionRing { slots: (0..slots.max(1)).map(|_| slot()).collect(), last: AtomicU64::new(0) }
    }

    /// Stores a record and returns its number.
    pub fn write(&self, decision: &Decision) -> DecisionId {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let slot = &self.slots[(id % self.slots.len() as u64) as usize];
        let held = slot.id.load(Ordering::Relaxed);
        // Do not overwrite a newer record, or a slot that a writer of another round is writing.
        let mine = held < id && slot.id.compare_exchange(held, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if mine {
            // A reader that sees one of the new words must not see the old number afterwards.
            fence(Ordering::Release);
            for (word, value) in slot.words.iter().zip(decision.encode()) {
                word.store(value, Ordering::Relaxed);
            }
            slot.id.store(id, Ordering::Release);
        }
        DecisionId(id)
    }

    /// Returns the record with this number, unless a newer one has replaced it.
    pub fn read(&self, id: DecisionId) -> Option<Decision> {
        let slot = &self.slots[(id.0 % self.slots.len() as u64) as usize];
        if matches!(id.0, 0 | WRITING) || slot.id.load(Ordering::Acquire) != id.0 {
            return None;
        }
        let words = std::array::from_fn(|index| slot.words[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = slot.id.load(Ordering::Relaxed) == id.0;
        same.then(|| Decision::decode(id.0, words))
    }

    /// Returns the newest records, newest first, at most `count`.
    pub fn newest(&self, count: usize) -> Vec<Decision> {
        let last = self.last.load(Ordering::Relaxed);
        let count = count.min(self.slots.len()) as u64;
        (last.saturating_sub(count)..last).rev().filter_map(|before| self.read(DecisionId(before + 1))).collect()
    }
}

#[cfg(test)]
fn decision(number: u64) -> Decision {
    Decision::decode(0, [number, number, number, number, number, number, number << 32 | 1 << 8 | 3])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reason::DecisionReason;
    use leeward_core::units::{Tenant, Time};

    #[test]
    fn a_record_is_readable_until_it_is_overwritten() {
        let ring = DecisionRing::new(16);
        let ids: Vec<_> = (1..=40).map(|number| ring.write(&decision(number))).collect();
        assert_eq!(ring.read(ids[0]), None);
        let read = ring.read(ids[39]).unwrap();
        assert_eq!((read.at, read.tenant, read.reject_reason), (Time(40), Tenant(40), Some(DecisionReason::Level)));
        assert_eq!(ring.newest(100).len(), 16);
        assert_eq!((ring.read(DecisionId(0)), ring.read(DecisionId(u64::MAX))), (None, None));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{sync::Arc, thread};

    /// A reader beside two writers of the same slot sees a whole record or none.
    #[test]
    fn a_record_is_never_read_partially() {
        let mut model = loom::model::Builder::new();
        // All interleavings with up to three preemptions; the unbounded check takes minutes and
        // finds no more.
        model.preemption_bound = Some(3);
        model.check(|| {
            let ring = Arc::new(DecisionRing::new(1));
            let writer = Arc::clone(&ring);
            let thread = thread::spawn(move || writer.write(&decision(1)));
            let id = ring.write(&decision(2));
            for id in [id, DecisionId(3 - id.0)] {
                if let Some(read) = ring.read(id) {
                    assert!(read.at.0 == u64::from(read.tenant.0) && read.at.0 == read.service_time.0, "{read:?}");
                }
            }
            thread.join().unwrap();
        });
    }
}
