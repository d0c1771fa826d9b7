//! Attempts of a request: its calls as they were sent, second attempts included.
//!
//! Does not contain when a call is sent again (`leeward_core::hedging`).

use super::super::calls::CallList;
use super::super::service::LeafId;
use crate::wire::RequestId;

/// A call on its way to a leaf.
#[derive(Clone, Copy, Debug)]
pub(in crate::tier) struct Attempt {
    /// Index of the call among the request's calls.
    pub(in crate::tier) place: u32,
    pub(in crate::tier) leaf: LeafId,
    /// Request id on the connection; `None` if the call ended there at once.
    pub(in crate::tier) request: Option<RequestId>,
    pub(in crate::tier) is_repeatable: bool,
    /// Index of the saved call, for a second attempt at another leaf.
    pub(in crate::tier) saved_call: Option<u32>,
    /// Whether the outcome is known, or no longer of interest.
    pub(in crate::tier) is_done: bool,
}

/// Attempts of a request; the memory is reused.
#[derive(Debug, Default)]
pub(in crate::tier) struct AttemptList {
    attempts: Vec<Attempt>,
    /// Number of calls with a second attempt.
    second_count: usize,
    /// Calls that may be sent again, each at the leaf that it names.
    pub(in crate::tier) saved_calls: CallList,
}

impl AttemptList {
    pub(in crate::tier) fn clear(&mut self) {
        self.attempts.clear();
        self.second_count = 0;
        self.saved_calls.clear();
    }

    /// Whether any call has a second attempt.
    pub(in crate::tier) fn has_second(&self) -> bool {
        self.second_count > 0
    }

    /// Adds the second attempt of a call and returns its number.
    pub(in crate::tier) fn push_second(&mut self, attempt: Attempt) -> u32 {
        self.second_count += 1;
        self.push(attempt)
    }

    /// Adds an attempt and returns its number.
    pub(in crate::tier) fn push(&mut self, attempt: Attempt) -> u32 {
        self.attempts.push(attempt);
        // A request has at most a few thousand calls, each with at most two attempts.
        self.attempts.len() as u32 - 1
    }

    pub(in crate::tier) fn get_mut(&mut self, number: u32) -> Option<&mut Attempt> {
        self.attempts.get_mut(number as usize)
    }

    /// Marks an attempt as ended and returns it; `None` if it had ended before.
    pub(in crate::tier) fn end(&mut self, number: u32) -> Option<Attempt> {
        let attempt = self.get_mut(number).filter(|attempt| !attempt.is_done)?;
        attempt.is_done = true;
        Some(*attempt)
    }

    /// The attempt in flight for the call at `place`, besides the one that has ended.
    ///
    /// Second attempts come after all first ones in the list.
    pub(in crate::tier) fn in_flight_for(&mut self, place: u32) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.place == place && !attempt.is_done)
    }

    /// Leaves of the attempts in flight.
    pub(in crate::tier) fn awaited_leaves(&self) -> impl Iterator<Item = LeafId> + '_ {
        self.attempts.iter().filter(|attempt| !attempt.is_done).map(|attempt| attempt.leaf)
    }

    /// Ends all repeatable attempts in flight, and passes those with a request id to `unwanted`.
    pub(in crate::tier) fn cancel_repeatable(&mut self, mut unwanted: impl FnMut(LeafId, RequestId)) {
        for attempt in self.attempts.iter_mut().filter(|attempt| !attempt.is_done && attempt.is_repeatable) {
            attempt.is_done = true;
            if let Some(request) = attempt.request {
                unwanted(attempt.leaf, request);
            }
        }
    }
}
