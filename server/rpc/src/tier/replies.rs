//! Replies to the calls of one step, with the results in one reusable buffer.

use super::calls::BUFFER_MAX;
use super::service::LeafError;
use crate::client::Event;

/// Replies, in the order of their calls.
#[derive(Debug, Default)]
pub(super) struct ReplyList {
    pub(super) replies: Vec<ReplyState>,
    pub(super) bytes: Vec<u8>,
}

/// State of a call, as far as the tier knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyState {
    /// No reply so far.
    Missing,
    /// A result, with its range in the buffer.
    Result { from: usize, to: usize },
    /// The call has ended without a result.
    Failed(LeafError),
}

impl ReplyList {
    /// Starts over for `calls` calls without replies.
    pub(super) fn begin(&mut self, calls: usize) {
        self.replies.clear();
        self.replies.resize(calls, ReplyState::Missing);
        self.bytes.clear();
        if self.bytes.capacity() > BUFFER_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Records the end of the call at `index`.
    ///
    /// Returns whether it has a result; `None` if it had ended before.
    pub(super) fn record_event<T>(&mut self, index: usize, event: &Event<'_, T>) -> Option<bool> {
        let state = match event {
            Event::Completed { payload, .. } => {
                let from = self.bytes.len();
                self.bytes.extend_from_slice(payload);
                ReplyState::Result { from, to: self.bytes.len() }
            }
            Event::Rejected { reason, .. } => ReplyState::Failed(LeafError::Rejected(*reason)),
            Event::Failed { code, .. } => ReplyState::Failed(LeafError::Failed(*code)),
            Event::EndedLocally { .. } => ReplyState::Failed(LeafError::NotSent),
            Event::TooLong { .. } => ReplyState::Failed(LeafError::Invalid),
            Event::Disconnected { .. } => ReplyState::Failed(LeafError::Disconnected),
        };
        self.note(index, state).then_some(matches!(state, ReplyState::Result { .. }))
    }

    /// Records a result of the call at `index`.
    pub(super) fn result(&mut self, index: usize, payload: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.note(index, ReplyState::Result { from, to: self.bytes.len() });
    }

    /// Records the state of a call once. Returns `false` if the call had ended before.
    pub(super) fn note(&mut self, index: usize, state: ReplyState) -> bool {
        match self.replies.get_mut(index) {
            Some(entry @ ReplyState::Missing) => {
                *entry = state;
                true
            }
            _ => false,
        }
    }
}
