//! A segment's decoded posting lists: the most recently used, up to a limit.
//!
//! The segment's lock covers the cache, because every lookup changes it.

use super::postings::LocalId;
use super::score::Norm;
use std::collections::BTreeMap;

/// A decoded posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) document: LocalId,
    pub(super) count: u32,
    /// The document's length.
    pub(super) norm: Norm,
}

/// Decoded lists by their number in the segment; evicts the least recently used.
#[derive(Debug, Default)]
pub(super) struct DecodedCache {
    lists: BTreeMap<u32, (u64, Vec<Occurrence>)>,
    /// Lists by the time of their last use.
    order: BTreeMap<u64, u32>,
    uses: u64,
    /// Postings in all lists.
    postings: usize,
    bound: usize,
}

impl DecodedCache {
    /// Creates a cache of up to `bound` postings; a longer list is kept as the only one.
    pub(super) fn new(bound: usize) -> Self {
        DecodedCache { bound, ..DecodedCache::default() }
    }

    /// Returns a list; decodes it with `decode` if it is not cached.
    pub(super) fn get(&mut self, list: u32, decode: impl FnOnce() -> Vec<Occurrence>) -> &[Occurrence] {
        self.uses += 1;
        let used = self.uses;
        if let Some((last_use, _)) = self.lists.get(&list) {
            self.order.remove(last_use);
        } else {
            let decoded = decode();
            self.evict(decoded.len());
            self.postings += decoded.len();
            self.lists.insert(list, (0, decoded));
        }
        self.order.insert(used, list);
        match self.lists.get_mut(&list) {
            Some((last, decoded)) => {
                *last = used;
                decoded
            }
            None => &[],
        }
    }

    fn evict(&mut self, length: usize) {
        while self.postings + length > self.bound
            && let Some((_, oldest)) = self.order.pop_first()
        {
            let postings = self.lists.remove(&oldest).map_or(0, |(_, decoded)| decoded.len());
            self.postings -= postings;
        }
    }

    /// Removes a list that has changed.
    pub(super) fn invalidate(&mut self, list: u32) {
        if let Some((used, decoded)) = self.lists.remove(&list) {
            self.order.remove(&used);
            self.postings -= decoded.len();
        }
    }

    /// Returns the number of cached postings.
    #[cfg(test)]
    fn postings(&self) -> usize {
        self.postings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(length: usize) -> Vec<Occurrence> {
        vec![Occurrence { document: 1, count: 1, norm: Norm(1) }; length]
    }

    #[test]
    fn the_least_recently_used_list_is_evicted() {
        let mut decoded = DecodedCache::new(10);
        let mut made = Vec::new();
        for (number, length) in [(1, 4), (2, 4), (1, 4), (3, 4), (1, 4), (2, 4)] {
            let got = decoded.get(number, || {
                made.push(number);
                list(length)
            });
            assert_eq!(got.len(), length);
            assert!(decoded.postings() <= 10);
        }
        assert_eq!(made, [1, 2, 3, 2]);
    }

    #[test]
    fn an_oversized_list_is_cached_alone_and_a_changed_one_decoded_again() {
        let mut decoded = DecodedCache::new(10);
        decoded.get(1, || list(5));
        assert_eq!(decoded.get(2, || list(50)).len(), 50);
        assert_eq!(decoded.postings(), 50);
        decoded.get(1, || list(5));
        assert_eq!(decoded.postings(), 5);
        decoded.invalidate(1);
        decoded.invalidate(7);
        assert_eq!((decoded.postings(), decoded.get(1, || list(6)).len()), (0, 6));
    }
}
