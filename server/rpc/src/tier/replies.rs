//! Replies to the calls of one step: results in one buffer, which is used again.

use super::calls::KEPT;
use super::service::LeafError;
use crate::client::Event;

/// Replies, by the places of their calls.
#[derive(Debug, Default)]
pub(super) struct ReplyList {
    pub(super) came: Vec<Came>,
    pub(super) bytes: Vec<u8>,
}

/// State of a call, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
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
        self.came.clear();
        self.came.resize(calls, Came::Missing);
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }

    /// The call at `place` has ended. Whether that is news, and whether it is a result.
    pub(super) fn end<T>(&mut self, place: usize, event: &Event<'_, T>) -> Option<bool> {
        let came = match event {
            Event::Completed { payload, .. } => {
                let from = self.bytes.len();
                self.bytes.extend_from_slice(payload);
                Came::Result { from, to: self.bytes.len() }
            }
            Event::Dropped { reason, .. } => Came::Failed(LeafError::Dropped(*reason)),
            Event::Failed { code, .. } => Came::Failed(LeafError::Failed(*code)),
            Event::Ended { .. } => Came::Failed(LeafError::Held),
            Event::TooLong { .. } => Came::Failed(LeafError::Refused),
            Event::Disconnected { .. } => Came::Failed(LeafError::Disconnected),
        };
        self.note(place, came).then_some(matches!(came, Came::Result { .. }))
    }

    /// The call at `place` has this result.
    pub(super) fn result(&mut self, place: usize, payload: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.note(place, Came::Result { from, to: self.bytes.len() });
    }

    /// Notes what became of a call, once. Whether it was the first news.
    pub(super) fn note(&mut self, place: usize, came: Came) -> bool {
        match self.came.get_mut(place) {
            Some(entry @ Came::Missing) => {
                *entry = came;
                true
            }
            _ => false,
        }
    }
}
