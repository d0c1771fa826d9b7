//! LRU list of a class, from the last stored item to the first, linked through the items' headers.
//!
//! An item that was read returns to the head when eviction reaches it (a second chance), so reading
//! takes no LRU lock.

use super::item::Item;
use super::memory::{Chunk, Memory};

/// A class's list, protected by its LRU lock.
pub(super) struct Lru {
    head: Chunk,
    tail: Chunk,
    length: usize,
    /// Items stored in this class so far.
    pub(super) stored: u64,
    /// Items evicted from this class so far.
    pub(super) evicted: u64,
}

impl Lru {
    pub(super) fn new() -> Self {
        Lru { head: Chunk::NONE, tail: Chunk::NONE, length: 0, stored: 0, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn tail(&self) -> Option<Chunk> {
        self.tail.some()
    }

    /// Returns the neighbour of `chunk` towards the head.
    pub(super) fn before(&self, memory: &Memory, chunk: Chunk) -> Option<Chunk> {
        Item::new(memory, chunk).links().0.some()
    }

    pub(super) fn push(&mut self, memory: &Memory, chunk: Chunk) {
        Item::new(memory, chunk).set_links(Chunk::NONE, self.head);
        match self.head.some() {
            None => self.tail = chunk,
            Some(head) => {
                let item = Item::new(memory, head);
                item.set_links(chunk, item.links().1);
            }
        }
        self.head = chunk;
        self.length += 1;
    }

    pub(super) fn remove(&mut self, memory: &Memory, chunk: Chunk) {
        let (before, after) = Item::new(memory, chunk).links();
        match before.some() {
            None => self.head = after,
            Some(before) => {
                let item = Item::new(memory, before);
                item.set_links(item.links().0, after);
            }
        }
        match after.some() {
            None => self.tail = before,
            Some(after) => {
                let item = Item::new(memory, after);
                item.set_links(before, item.links().1);
            }
        }
        self.length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::PAGE;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_as_a_plain_list(steps in prop::collection::vec((0u8..3, 0usize..20), 0..200)) {
            let memory = Memory::new(1, &[96, PAGE]);
            memory.open(0, 0);
            let mut lru = Lru::new();
            let mut model: VecDeque<Chunk> = VecDeque::new();
            for (step, index) in steps {
                let chunk = Chunk::new(0, index);
                let listed = model.contains(&chunk);
                if step > 0 && !listed {
                    lru.push(&memory, chunk);
                    model.push_front(chunk);
                } else if step == 0 && listed {
                    lru.remove(&memory, chunk);
                    model.retain(|other| *other != chunk);
                }
                prop_assert_eq!(lru.len(), model.len());
                let mut walked = Vec::new();
                let mut next = lru.tail();
                while let Some(chunk) = next {
                    walked.push(chunk);
                    next = lru.before(&memory, chunk);
                }
                prop_assert_eq!(walked, model.iter().rev().copied().collect::<Vec<_>>());
            }
        }
    }
}
