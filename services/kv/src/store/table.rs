//! The part of the hash table under one item lock: its buckets, chained through the items.
//!
//! Each part grows by itself when its chains get long; the other parts stay available.

use super::item::Item;
use super::memory::{Chunk, Memory};

/// Buckets of one lock.
pub(super) struct Stripe {
    buckets: Box<[Chunk]>,
    items: usize,
    /// Low bits of a hash that select the lock.
    lock_power: u8,
}

impl Stripe {
    pub(super) fn new(bucket_power: u8, lock_power: u8) -> Self {
        Stripe { buckets: vec![Chunk::NONE; 1 << bucket_power].into(), items: 0, lock_power }
    }

    pub(super) fn len(&self) -> usize {
        self.items
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    fn bucket(&self, hash: u32) -> usize {
        (hash >> self.lock_power) as usize & (self.buckets.len() - 1)
    }

    pub(super) fn find(&self, memory: &Memory, hash: u32, key: &[u8]) -> Option<Chunk> {
        let mut next = self.buckets[self.bucket(hash)];
        while let Some(chunk) = next.some() {
            let item = Item::new(memory, chunk);
            if item.hash() == hash && item.has_key(key) {
                return Some(chunk);
            }
            next = item.next();
        }
        None
    }

    pub(super) fn insert(&mut self, memory: &Memory, chunk: Chunk) {
        // memcached's limit: one and a half items per bucket.
        if self.items >= self.buckets.len() + self.buckets.len() / 2 && self.buckets.len() < 1 << 20 {
            self.grow(memory);
        }
        let item = Item::new(memory, chunk);
        let bucket = self.bucket(item.hash());
        item.set_next(self.buckets[bucket]);
        self.buckets[bucket] = chunk;
        self.items += 1;
    }

    /// Removes the item; returns whether the table contained it.
    pub(super) fn remove(&mut self, memory: &Memory, chunk: Chunk) -> bool {
        let item = Item::new(memory, chunk);
        let bucket = self.bucket(item.hash());
        let mut next = self.buckets[bucket];
        if next == chunk {
            self.buckets[bucket] = item.next();
            self.items -= 1;
            return true;
        }
        while let Some(before) = next.some() {
            let before = Item::new(memory, before);
            next = before.next();
            if next == chunk {
                before.set_next(item.next());
                self.items -= 1;
                return true;
            }
        }
        false
    }

    fn grow(&mut self, memory: &Memory) {
        let grown = vec![Chunk::NONE; 2 * self.buckets.len()].into();
        let old = std::mem::replace(&mut self.buckets, grown);
        for head in old {
            let mut next = head;
            while let Some(chunk) = next.some() {
                let item = Item::new(memory, chunk);
                next = item.next();
                let bucket = self.bucket(item.hash());
                item.set_next(self.buckets[bucket]);
                self.buckets[bucket] = chunk;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::PAGE;
    use super::super::item::Header;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a plain map, starting with one bucket, with hashes that often collide.
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..60), 0..200)) {
            let memory = Memory::new(1, &[96, PAGE]);
            memory.open(0, 0);
            let mut stripe = Stripe::new(0, 1);
            let mut model = BTreeMap::new();
            for (insert, number) in steps {
                let (hash, key) = (number / 2, number.to_be_bytes());
                let chunk = Chunk::new(0, number as usize);
                if insert && !model.contains_key(&number) {
                    let header = Header { hash, client_flags: 0, expires: 0, stored: 0, marks: 0 };
                    Item::new(&memory, chunk).write(&header, &key, b"");
                    stripe.insert(&memory, chunk);
                    model.insert(number, chunk);
                } else if !insert {
                    let there = model.remove(&number);
                    prop_assert_eq!(there.is_some() && stripe.remove(&memory, chunk), there.is_some());
                }
                prop_assert_eq!(stripe.len(), model.len());
                for number in 0u32..60 {
                    let found = stripe.find(&memory, number / 2, &number.to_be_bytes());
                    prop_assert_eq!(found, model.get(&number).copied());
                }
            }
        }
    }
}
