//! A four-ary heap of keyed values. It is shallower than a binary heap, and a node's children share
//! a cache line or two.

/// A heap with the smallest key first.
pub(crate) struct Heap<E> {
    entries: Vec<((u64, u64), E)>,
}

const ARITY: usize = 4;

impl<E> Heap<E> {
    pub(crate) fn new() -> Self {
        Heap { entries: Vec::new() }
    }

    /// The smallest key.
    pub(crate) fn head(&self) -> Option<(u64, u64)> {
        self.entries.first().map(|entry| entry.0)
    }

    pub(crate) fn push(&mut self, key: (u64, u64), value: E) {
        self.entries.push((key, value));
        let mut child = self.entries.len() - 1;
        while child > 0 {
            let parent = (child - 1) / ARITY;
            if self.entries[parent].0 <= self.entries[child].0 {
                break;
            }
            self.entries.swap(parent, child);
            child = parent;
        }
    }

    /// Removes and returns the value with the smallest key.
    pub(crate) fn pop(&mut self) -> Option<E> {
        if self.entries.is_empty() {
            return None;
        }
        let (_, value) = self.entries.swap_remove(0);
        let mut parent = 0;
        loop {
            let first = parent * ARITY + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(child) = (first..last).min_by_key(|child| self.entries[*child].0) else { break };
            if self.entries[parent].0 <= self.entries[child].0 {
                break;
            }
            self.entries.swap(parent, child);
            parent = child;
        }
        Some(value)
    }
}
