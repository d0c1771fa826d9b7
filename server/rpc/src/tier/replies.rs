//! Replies to the calls of one step: results in one buffer, which is used again.

use super::calls::BUFFER_MAX;
use super::service::LeafError;
use crate::client::Event;

/// Replies, by the places of their calls.
#[derive(Debug, Default)]
pub(super) struct ReplyList {
    pub(super) replies: Vec<ReplyState>,
    pub(super) bytes: Vec<u8>,
}

/// State of a call, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyState {
    /// Nothing yet.
    Missing,
    /// A result, at this place of the buffer.
    Result { from: usize, to: usize },
    /// The call has ended without a result.
    Failed(LeafError),
}

impl ReplyList {
    /// Nothing has come of so many calls.
    pub(super) fn begin(&mut self, calls: usize) {
        self.replies.clear();
        self.replies.resize(calls, ReplyState::Missing);
        self.bytes.clear();
        if self.bytes.capacity() > BUFFER_MAX {
            self.bytes = Vec::new();
        }
    }

    /// The call at `place` has ended. Whether that is news, and whether it is a result.
    pub(super) fn record_event<T>(&mut self, place: usize, event: &Event<'_, T>) -> Option<bool> {
        let came = match event {
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
        self.note(place, came).then_some(matches!(came, ReplyState::Result { .. }))
    }

    /// The call at `place` has this result.
    pub(super) fn result(&mut self, place: usize, payload: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.note(place, ReplyState::Result { from, to: self.bytes.len() });
    }

    /// Notes what became of a call, once. Whether it was the first news.
    pub(super) fn note(&mut self, place: usize, came: ReplyState) -> bool {
        match self.replies.get_mut(place) {
            Some(entry @ ReplyState::Missing) => {
                *entry = came;
                true
            }
            _ => false,
        }
    }
}
