//! A first-in first-out queue of fixed capacity whose entries record their arrival times.

use std::collections::VecDeque;

use crate::units::{Nanos, Time};

/// A queue with a capacity; a push to a full queue displaces the oldest entry. So does the
/// published client: the newest request has the best chance to be in time.
#[derive(Debug)]
pub struct BoundedQueue<T> {
    entries: VecDeque<(Time, T)>,
    capacity: usize,
}

/// Entries for which a queue reserves memory at first, unless its capacity is smaller.
const FIRST_RESERVED: usize = 64;

impl<T> BoundedQueue<T> {
    /// Creates a queue for `capacity` entries (at least one). The queue allocates at its first use,
    /// and a long queue as it grows: most clients never fill theirs.
    pub fn new(capacity: usize) -> Self {
        BoundedQueue { entries: VecDeque::new(), capacity: capacity.max(1) }
    }

    /// Appends `entry`; returns the oldest and its waiting time if the queue was full.
    pub fn push(&mut self, now: Time, entry: T) -> Option<(T, Nanos)> {
        let displaced = if self.entries.len() >= self.capacity { self.pop(now) } else { None };
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(self.capacity.min(FIRST_RESERVED));
        }
        self.entries.push_back((now, entry));
        displaced
    }

    /// Takes the oldest entry and its waiting time.
    pub fn pop(&mut self, now: Time) -> Option<(T, Nanos)> {
        self.entries.pop_front().map(|(since, entry)| (entry, now.since(since)))
    }

    /// Takes the first entry for which `is` returns true, and its waiting time. O(n).
    pub fn remove(&mut self, now: Time, is: impl Fn(&T) -> bool) -> Option<(T, Nanos)> {
        let index = self.entries.iter().position(|(_, entry)| is(entry))?;
        self.entries.remove(index).map(|(since, entry)| (entry, now.since(since)))
    }

    /// Arrival time of the oldest entry.
    pub fn oldest(&self) -> Option<Time> {
        self.entries.front().map(|(since, _)| *since)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_use_and_not_with_capacity() {
        let mut queue = BoundedQueue::new(65_536);
        assert_eq!(queue.push(Time(1), 0), None);
        assert!(queue.entries.capacity() <= 2 * FIRST_RESERVED, "room for {}", queue.entries.capacity());
        for entry in 1..65_536 {
            assert_eq!(queue.push(Time(1), entry), None);
        }
        assert_eq!(queue.push(Time(1), 65_536), Some((0, Nanos::ZERO)));
    }

    #[test]
    fn a_full_queue_evicts_the_oldest_entry() {
        let mut queue = BoundedQueue::new(2);
        assert_eq!(queue.push(Time(1), 'a'), None);
        assert_eq!(queue.push(Time(2), 'b'), None);
        assert_eq!(queue.push(Time(5), 'c'), Some(('a', Nanos(4))));
        assert_eq!(queue.oldest(), Some(Time(2)));
        assert_eq!(queue.pop(Time(6)), Some(('b', Nanos(4))));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn removes_an_entry_from_the_middle() {
        let mut queue = BoundedQueue::new(3);
        for (at, entry) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            assert_eq!(queue.push(Time(at), entry), None);
        }
        assert_eq!(queue.remove(Time(7), |entry| *entry == 'b'), Some(('b', Nanos(5))));
        assert_eq!(queue.remove(Time(7), |entry| *entry == 'b'), None);
        assert_eq!(queue.push(Time(8), 'd'), None, "its place is free");
        assert_eq!(queue.pop(Time(8)), Some(('a', Nanos(7))));
        assert_eq!(queue.pop(Time(8)), Some(('c', Nanos(5))));
    }
}
