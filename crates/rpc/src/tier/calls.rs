//! Calls of one step on their way to the leaves: arguments in one buffer, which is used again.

use super::service::{CALLS_MAX, LeafId};
use crate::wire::Method;

/// Bytes of a buffer that is kept; a larger one is given back.
pub(super) const KEPT: usize = 64 * 1024;

/// Calls, in their order.
#[derive(Debug, Default)]
pub(super) struct CallList {
    calls: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    leaf: LeafId,
    method: Method,
    from: usize,
    to: usize,
}

impl CallList {
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn push(&mut self, leaf: LeafId, method: Method, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.bytes.len();
        // One more than there may be is counted, and ends refused.
        if self.calls.len() <= CALLS_MAX {
            write(&mut self.bytes);
            // A service that shortens the buffer shortens its own argument alone.
            let to = self.bytes.len().max(from);
            self.bytes.resize(to, 0);
            self.calls.push(Entry { leaf, method, from, to });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The call at a place: leaf, method, argument.
    pub(super) fn get(&self, place: usize) -> Option<(LeafId, Method, &[u8])> {
        let Entry { leaf, method, from, to } = *self.calls.get(place)?;
        Some((leaf, method, &self.bytes[from..to]))
    }
}
