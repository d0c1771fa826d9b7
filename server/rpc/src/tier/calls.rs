//! Calls of one step on their way to the leaves: arguments in one buffer, which is used again.

use super::service::{CALLS_MAX, LeafId};
use crate::wire::Method;

/// Bytes of a buffer that is kept; a larger one is given back.
pub(super) const BUFFER_MAX: usize = 64 * 1024;

/// Calls, in their order.
#[derive(Debug, Default)]
pub(super) struct CallList {
    calls: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    leaf: LeafId,
    method: Method,
    /// Whether it may be executed twice, or given up: it changes nothing.
    pub(super) is_repeatable: bool,
    /// Another leaf that has the same.
    pub(super) alternate: Option<LeafId>,
    from: usize,
    to: usize,
}

/// A call of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEntry<'a> {
    pub(super) leaf: LeafId,
    pub(super) method: Method,
    pub(super) is_repeatable: bool,
    pub(super) alternate: Option<LeafId>,
    pub(super) payload: &'a [u8],
}

impl CallList {
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.bytes.clear();
        if self.bytes.capacity() > BUFFER_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Appends a call, and returns it for what else is to be said of it; `None` if there are too many.
    pub(super) fn push(
        &mut self,
        leaf: LeafId,
        method: Method,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&mut Entry> {
        let from = self.bytes.len();
        // One more than there may be is counted, and ends refused.
        if self.calls.len() > CALLS_MAX {
            return None;
        }
        write(&mut self.bytes);
        // A service that shortens the buffer shortens its own argument alone.
        let to = self.bytes.len().max(from);
        self.bytes.resize(to, 0);
        self.calls.push(Entry { leaf, method, is_repeatable: false, alternate: None, from, to });
        self.calls.last_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The call at a place.
    pub(super) fn get(&self, place: usize) -> Option<CallEntry<'_>> {
        let Entry { leaf, method, is_repeatable, alternate: other, from, to } = *self.calls.get(place)?;
        Some(CallEntry { leaf, method, is_repeatable, alternate: other, payload: &self.bytes[from..to] })
    }
}
