//! Decisions that can be asked about: a ring of records of 64 bytes, written and read without locks. A record that two
//! threads would write at once is lost to one of them. Never here: how a decision is made.

use crate::arriving::Class;
use crate::counts::Reason;
use crate::sync::{AtomicU64, Ordering, fence};
use leeward_control::units::{Nanos, Priority, Tenant, Time};
use std::fmt;

/// Number of a decision; the first is 1. Goes out with a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Record of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Its number.
    pub id: DecisionId,
    /// When, since the gate was made.
    pub at: Time,
    /// Why it was refused; `None`: admitted.
    pub refused: Option<Reason>,
    /// How long the request had waited.
    pub waited: Nanos,
    /// The queueing delay that the controller was told of.
    pub delay: Nanos,
    /// Time that the request had left; `Nanos::MAX` without a limit.
    pub left: Nanos,
    /// Time that requests of its route take, as far as known.
    pub service: Nanos,
    /// Its class and place among the users of the class, 1 to 128.
    pub priority: Priority,
    /// Account that it counts for.
    pub tenant: Tenant,
    /// Its route's number.
    pub route: u8,
}

impl Decision {
    /// Class of the request, one lower than it said if it was repeated.
    pub fn class(&self) -> Class {
        Class::new((self.priority.level() - 1) / 16)
    }

    fn words(&self) -> [u64; WORDS] {
        let reason = self.refused.map_or(0, |reason| reason as u64 + 1);
        let small = u64::from(self.tenant.0) << 32
            | u64::from(self.route) << 16
            | u64::from(self.priority.level()) << 8
            | reason;
        [self.at.0, self.waited.0, self.delay.0, self.left.0, self.service.0, small]
    }

    fn of(id: u64, [at, waited, delay, left, service, small]: [u64; WORDS]) -> Self {
        let reason = (small & 0xff) as usize;
        Decision {
            id: DecisionId(id),
            at: Time(at),
            refused: reason.checked_sub(1).and_then(|reason| Reason::ALL.get(reason).copied()),
            waited: Nanos(waited),
            delay: Nanos(delay),
            left: Nanos(left),
            service: Nanos(service),
            priority: Priority::new((small >> 8) as u8),
            tenant: Tenant((small >> 32) as u32),
            route: (small >> 16) as u8,
        }
    }
}

/// The decision in a sentence.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { at, waited, delay, left, service, .. } = self;
        let class = self.class().number();
        match self.refused {
            None => write!(f, "Admitted at {:.3} s after {waited}.", at.0 as f64 / 1e9),
            Some(reason) => {
                write!(f, "Refused at {:.3} s: {}. ", at.0 as f64 / 1e9, reason.word())?;
                match reason {
                    Reason::Late | Reason::Deadline => {
                        let of = if *left == Nanos::MAX { "no limit".into() } else { left.to_string() };
                        write!(f, "It had waited {waited} of {of}, and requests of its kind take {service}.")
                    }
                    Reason::Level => write!(f, "The queue stood at {delay}; class {class} was not let in whole."),
                    Reason::Share => write!(
                        f,
                        "The queue stood at {delay}, and tenant {} had asked for more than its share.",
                        self.tenant.0
                    ),
                    Reason::Concurrency => f.write_str("As many requests were under way as may be."),
                    Reason::Lock => f.write_str("A lock on its way would not have come in time."),
                }
            }
        }
    }
}

const WORDS: usize = 6;
/// A slot's state while it is written.
const WRITING: u64 = u64::MAX;

/// 64 bytes: the number of the record in it (0: none yet), one word spare, and the record.
#[repr(align(64))]
struct Slot {
    holds: AtomicU64,
    words: [AtomicU64; WORDS],
}

pub(crate) struct Ring {
    slots: Vec<Slot>,
    last: AtomicU64,
}

impl Ring {
    pub(crate) fn new(slots: usize) -> Self {
        let slot = || Slot { holds: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        Ring { slots: (0..slots.max(1)).map(|_| slot()).collect(), last: AtomicU64::new(0) }
    }

    /// Keeps a record, and gives it its number.
    pub(crate) fn write(&self, decision: &Decision) -> DecisionId {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let slot = &self.slots[(id % self.slots.len() as u64) as usize];
        let held = slot.holds.load(Ordering::Relaxed);
        // A newer record, or one that is being written a whole round later or earlier, stays.
        let mine =
            held < id && slot.holds.compare_exchange(held, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if mine {
            // Whoever reads one of the new words must not read the old number afterwards.
            fence(Ordering::Release);
            for (word, value) in slot.words.iter().zip(decision.words()) {
                word.store(value, Ordering::Relaxed);
            }
            slot.holds.store(id, Ordering::Release);
        }
        DecisionId(id)
    }

    /// The record of this number, unless others have taken its place.
    pub(crate) fn read(&self, id: DecisionId) -> Option<Decision> {
        let slot = &self.slots[(id.0 % self.slots.len() as u64) as usize];
        if id.0 == 0 || slot.holds.load(Ordering::Acquire) != id.0 {
            return None;
        }
        let words = std::array::from_fn(|index| slot.words[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = slot.holds.load(Ordering::Relaxed) == id.0;
        same.then(|| Decision::of(id.0, words))
    }

    /// The newest records, newest first, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<Decision> {
        let last = self.last.load(Ordering::Relaxed);
        let count = count.min(self.slots.len()) as u64;
        (last.saturating_sub(count)..last).rev().filter_map(|before| self.read(DecisionId(before + 1))).collect()
    }
}

#[cfg(test)]
fn decision(number: u64) -> Decision {
    Decision::of(0, [number, number, number, number, number, number << 32 | 1 << 8 | 3])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_until_its_place_is_taken() {
        let ring = Ring::new(16);
        let ids: Vec<_> = (1..=40).map(|number| ring.write(&decision(number))).collect();
        assert_eq!(ring.read(ids[0]), None);
        let read = ring.read(ids[39]).unwrap();
        assert_eq!((read.at, read.tenant, read.refused), (Time(40), Tenant(40), Some(Reason::Level)));
        assert_eq!(ring.newest(100).len(), 16);
        assert_eq!((ring.read(DecisionId(0)), ring.read(DecisionId(u64::MAX))), (None, None));
    }

    #[test]
    fn every_reason_has_a_sentence() {
        for reason in Reason::ALL {
            let text = Decision { refused: Some(reason), ..decision(7) }.to_string();
            assert!(text.contains(reason.word()), "{text}");
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{sync::Arc, thread};

    /// A reader beside two writers of the same slot sees a whole record or none.
    #[test]
    fn a_record_is_read_whole() {
        let mut model = loom::model::Builder::new();
        // Every interleaving with up to so many preemptions: all of them take minutes and find no more.
        model.preemption_bound = Some(3);
        model.check(|| {
            let ring = Arc::new(Ring::new(1));
            let writer = Arc::clone(&ring);
            let thread = thread::spawn(move || writer.write(&decision(1)));
            let id = ring.write(&decision(2));
            for id in [id, DecisionId(3 - id.0)] {
                if let Some(read) = ring.read(id) {
                    assert!(read.at.0 == u64::from(read.tenant.0) && read.at.0 == read.service.0, "{read:?}");
                }
            }
            thread.join().unwrap();
        });
    }
}
