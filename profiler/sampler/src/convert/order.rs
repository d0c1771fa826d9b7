//! Puts records of several sources into the order of their times, in bounded memory.
//!
//! Does not know what the items are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Items that wait until all earlier ones have arrived.
#[derive(Debug)]
pub(super) struct Reorder<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry<T> {
    time: u64,
    sequence: u64,
    bytes: usize,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.time, self.sequence)
    }
}

// The heap's greatest entry is the earliest one.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Reorder<T> {
    /// Nothing waits yet. `limit` bounds the bytes of waiting items.
    pub(super) fn new(limit: usize) -> Reorder<T> {
        Reorder { heap: BinaryHeap::new(), sequence: 0, bytes: 0, limit }
    }

    /// Adds an item of about this many bytes. Items of equal times keep their order.
    pub(super) fn push(&mut self, time: u64, bytes: usize, item: T) {
        self.sequence += 1;
        self.bytes += bytes;
        self.heap.push(Entry { time, sequence: self.sequence, bytes, item });
    }

    /// Returns the earliest item, if it is not later than `until` or there are too many.
    pub(super) fn pop(&mut self, until: u64) -> Option<(u64, T)> {
        let earliest = self.heap.peek()?.time;
        if earliest > until && self.bytes <= self.limit {
            return None;
        }
        let Entry { time, bytes, item, .. } = self.heap.pop()?;
        self.bytes -= bytes;
        Some((time, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_come_in_the_order_of_time_and_none_is_lost(times in prop::collection::vec(0_u64..20, 0..60)) {
            let mut order = Reorder::new(usize::MAX);
            for (index, time) in times.iter().enumerate() {
                order.push(*time, 1, index);
            }
            let mut sorted: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
            sorted.sort_unstable();
            let early: Vec<_> = std::iter::from_fn(|| order.pop(9)).collect();
            prop_assert!(early.iter().all(|(time, _)| *time <= 9));
            let rest = std::iter::from_fn(|| order.pop(u64::MAX));
            prop_assert_eq!(early.iter().copied().chain(rest).collect::<Vec<_>>(), sorted);
        }

        #[test]
        fn memory_is_bounded(times in prop::collection::vec(0_u64..20, 0..60)) {
            let mut order = Reorder::new(50);
            for time in times {
                order.push(time, 10, ());
                while order.pop(0).is_some() {}
                prop_assert!(order.bytes <= 50);
            }
        }
    }
}
