//! The sessions of one core that hold no credit and have no request outstanding. No response will
//! carry a credit to them, so they wait for an explicit credit. Insert, remove and take are O(1);
//! memory grows with sessions, never with requests.

use super::config::WakeOrder;
use leeward_core::server::SessionSlot;

const NONE: u32 = u32::MAX;

/// A set of session slots with its own order.
#[derive(Debug)]
pub(super) enum DrainedSessions {
    /// First in, first out: a linked list threaded through two arrays.
    Fifo { next: Vec<u32>, previous: Vec<u32>, head: u32, tail: u32 },
    /// Random order: a dense array and each slot's position in it.
    Random { members: Vec<u32>, position: Vec<u32> },
}

/// Marks a slot of the linked list as absent (`NONE` is the end of the list).
const ABSENT: u32 = u32::MAX - 1;

impl DrainedSessions {
    pub(super) fn new(waking: WakeOrder) -> Self {
        match waking {
            WakeOrder::Fifo => DrainedSessions::Fifo { next: Vec::new(), previous: Vec::new(), head: NONE, tail: NONE },
            WakeOrder::Random => DrainedSessions::Random { members: Vec::new(), position: Vec::new() },
        }
    }

    /// Reserves memory for `slot`, so that inserting it later allocates nothing.
    pub(super) fn reserve(&mut self, slot: SessionSlot) {
        let len = slot.0 as usize + 1;
        match self {
            DrainedSessions::Fifo { next, previous, .. } => {
                if next.len() < len {
                    next.resize(len, ABSENT);
                    previous.resize(len, ABSENT);
                }
            }
            DrainedSessions::Random { members, position: positions } => {
                if positions.len() < len {
                    positions.resize(len, ABSENT);
                    members.reserve(len - members.len());
                }
            }
        }
    }

    /// Adds `slot` at the end, unless the set contains it already.
    pub(super) fn insert(&mut self, slot: SessionSlot) {
        self.reserve(slot);
        let at = slot.0 as usize;
        match self {
            DrainedSessions::Fifo { next, previous, head, tail } => {
                if next[at] != ABSENT {
                    return;
                }
                next[at] = NONE;
                previous[at] = *tail;
                match *tail {
                    NONE => *head = slot.0,
                    last => next[last as usize] = slot.0,
                }
                *tail = slot.0;
            }
            DrainedSessions::Random { members, position: positions } => {
                if positions[at] == ABSENT {
                    positions[at] = members.len() as u32;
                    members.push(slot.0);
                }
            }
        }
    }

    /// Whether the set contains `slot`.
    pub(super) fn contains(&self, slot: SessionSlot) -> bool {
        let links = match self {
            DrainedSessions::Fifo { next, .. } => next,
            DrainedSessions::Random { position: positions, .. } => positions,
        };
        links.get(slot.0 as usize).is_some_and(|link| *link != ABSENT)
    }

    /// Removes `slot`, if the set contains it.
    pub(super) fn remove(&mut self, slot: SessionSlot) {
        let at = slot.0 as usize;
        match self {
            DrainedSessions::Fifo { next, previous, head, tail } => {
                if next.get(at).is_none_or(|link| *link == ABSENT) {
                    return;
                }
                let (before, after) = (previous[at], next[at]);
                match before {
                    NONE => *head = after,
                    before => next[before as usize] = after,
                }
                match after {
                    NONE => *tail = before,
                    after => previous[after as usize] = before,
                }
                next[at] = ABSENT;
                previous[at] = ABSENT;
            }
            DrainedSessions::Random { members, position: positions } => {
                if positions.get(at).is_none_or(|index| *index == ABSENT) {
                    return;
                }
                let index = positions[at] as usize;
                positions[at] = ABSENT;
                members.swap_remove(index);
                if let Some(moved) = members.get(index) {
                    positions[*moved as usize] = index as u32;
                }
            }
        }
    }

    /// Takes the next slot: the oldest, or the one that `random` picks.
    pub(super) fn take(&mut self, random: u64) -> Option<SessionSlot> {
        let slot = match self {
            DrainedSessions::Fifo { head, .. } => (*head != NONE).then_some(*head),
            DrainedSessions::Random { members, .. } => {
                // Scales the high bits to the length: no division, and a negligible bias.
                let index = (u128::from(random) * members.len() as u128) >> 64;
                members.get(index as usize).copied()
            }
        }
        .map(SessionSlot)?;
        self.remove(slot);
        Some(slot)
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            DrainedSessions::Fifo { head, .. } => *head == NONE,
            DrainedSessions::Random { members, .. } => members.is_empty(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares both orders with a plain list: the same members after each step, and for FIFO
        /// the same order.
        #[test]
        fn behaves_as_a_list(steps in prop::collection::vec((0u8..3, 0u32..12, any::<u64>()), 0..200)) {
            for waking in [WakeOrder::Fifo, WakeOrder::Random] {
                let mut drained = DrainedSessions::new(waking);
                let mut model: Vec<u32> = Vec::new();
                for (step, slot, random) in &steps {
                    match step {
                        0 => {
                            drained.insert(SessionSlot(*slot));
                            if !model.contains(slot) { model.push(*slot); }
                        }
                        1 => {
                            drained.remove(SessionSlot(*slot));
                            model.retain(|member| member != slot);
                        }
                        _ => {
                            let taken = drained.take(*random).map(|slot| slot.0);
                            prop_assert_eq!(taken.is_none(), model.is_empty());
                            if let Some(taken) = taken {
                                prop_assert!(model.contains(&taken));
                                if waking == WakeOrder::Fifo { prop_assert_eq!(taken, model[0]); }
                                model.retain(|member| *member != taken);
                            }
                        }
                    }
                    prop_assert_eq!(drained.is_empty(), model.is_empty());
                }
            }
        }
    }
}
