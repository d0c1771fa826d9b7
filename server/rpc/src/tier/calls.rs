//! Calls of one step on their way to the leaves, with their arguments in one reusable buffer.

use super::service::{CALLS_MAX, LeafId};
use crate::wire::Method;

/// Largest buffer that is kept for reuse, in bytes; a larger one is freed.
pub(super) const BUFFER_MAX: usize = 64 * 1024;

/// Calls of one step, in the order in which the service made them.
#[derive(Debug, Default)]
pub(super) struct CallList {
    calls: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    leaf: LeafId,
    method: Method,
    /// Whether the leaf may execute the call twice, or never: the call changes nothing.
    pub(super) is_repeatable: bool,
    /// Another leaf with the same data.
    pub(super) alternate: Option<LeafId>,
    from: usize,
    to: usize,
}

/// A call of the list, with its argument.
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

    /// Appends a call and returns it for further settings; `None` if there are too many calls.
    pub(super) fn push(
        &mut self,
        leaf: LeafId,
        method: Method,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&mut Entry> {
        let from = self.bytes.len();
        // One call over the limit is recorded, so that it ends as invalid.
        if self.calls.len() > CALLS_MAX {
            return None;
        }
        write(&mut self.bytes);
        // A service that shortens the buffer shortens only its own argument.
        let to = self.bytes.len().max(from);
        self.bytes.resize(to, 0);
        self.calls.push(Entry { leaf, method, is_repeatable: false, alternate: None, from, to });
        self.calls.last_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The call at an index of the list.
    pub(super) fn get(&self, index: usize) -> Option<CallEntry<'_>> {
        let Entry { leaf, method, is_repeatable, alternate: other, from, to } = *self.calls.get(index)?;
        Some(CallEntry { leaf, method, is_repeatable, alternate: other, payload: &self.bytes[from..to] })
    }
}
