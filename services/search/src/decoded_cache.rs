//! A segment's decoded posting lists: those that were asked for last, up to a bound. Part of what the segment's lock
//! guards, for every look-up changes it.

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

/// Lists by their number in the segment, least recently used first to go.
#[derive(Debug, Default)]
pub(super) struct DecodedCache {
    lists: BTreeMap<u32, (u64, Vec<Occurrence>)>,
    /// By when they were used.
    order: BTreeMap<u64, u32>,
    uses: u64,
    /// Postings in all lists.
    postings: usize,
    bound: usize,
}

impl DecodedCache {
    /// Holds up to `bound` postings; a single list that is longer is held alone.
    pub(super) fn new(bound: usize) -> Self {
        DecodedCache { bound, ..DecodedCache::default() }
    }

    /// The list, decoded with `decode` unless it is here.
    pub(super) fn get(&mut self, list: u32, decode: impl FnOnce() -> Vec<Occurrence>) -> &[Occurrence] {
        self.uses += 1;
        let used = self.uses;
        if let Some((before, _)) = self.lists.get(&list) {
            self.order.remove(before);
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

    /// The list has changed.
    pub(super) fn invalidate(&mut self, list: u32) {
        if let Some((used, decoded)) = self.lists.remove(&list) {
            self.order.remove(&used);
            self.postings -= decoded.len();
        }
    }

    /// Postings held.
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
    fn the_least_recently_used_goes() {
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
    fn one_that_is_too_long_is_alone_and_one_that_changed_is_made_anew() {
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
