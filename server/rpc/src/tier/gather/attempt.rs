//! Legs of a request: its calls as they were made, those that were made twice included. Never here: when one is made again
//! (`leeward_core::hedging`).

use super::super::calls::CallList;
use super::super::service::LeafId;
use crate::wire::RequestId;

/// A call on its way to a leaf.
#[derive(Clone, Copy, Debug)]
pub(in crate::tier) struct Attempt {
    /// The call's place among the request's.
    pub(in crate::tier) place: u32,
    pub(in crate::tier) leaf: LeafId,
    /// Its name on the connection; `None` if it has ended there at once.
    pub(in crate::tier) request: Option<RequestId>,
    pub(in crate::tier) is_repeatable: bool,
    /// Where the call is kept in case it is made again, at another leaf.
    pub(in crate::tier) saved_call: Option<u32>,
    /// Whether its end is known, or of no interest any more.
    pub(in crate::tier) is_done: bool,
}

/// Legs of a request. Their memory is used again.
#[derive(Debug, Default)]
pub(in crate::tier) struct AttemptList {
    attempts: Vec<Attempt>,
    /// Calls that were made twice.
    second_count: usize,
    /// Calls that may be made again, at the leaf that they name.
    pub(in crate::tier) saved_calls: CallList,
}

impl AttemptList {
    pub(in crate::tier) fn clear(&mut self) {
        self.attempts.clear();
        self.second_count = 0;
        self.saved_calls.clear();
    }

    /// Whether any call was made twice.
    pub(in crate::tier) fn has_second(&self) -> bool {
        self.second_count > 0
    }

    /// Adds a second one of a call. Returns its number.
    pub(in crate::tier) fn push_second(&mut self, leg: Attempt) -> u32 {
        self.second_count += 1;
        self.push(leg)
    }

    /// Adds one. Returns its number.
    pub(in crate::tier) fn push(&mut self, leg: Attempt) -> u32 {
        self.attempts.push(leg);
        // A request has a few thousand calls at most, and each is made twice at most.
        self.attempts.len() as u32 - 1
    }

    pub(in crate::tier) fn get_mut(&mut self, number: u32) -> Option<&mut Attempt> {
        self.attempts.get_mut(number as usize)
    }

    /// A leg has ended: what it was. `None` if that was known.
    pub(in crate::tier) fn end(&mut self, number: u32) -> Option<Attempt> {
        let leg = self.get_mut(number).filter(|leg| !leg.is_done)?;
        leg.is_done = true;
        Some(*leg)
    }

    /// The other leg of the call at `place` that is under way. A call's second leg comes behind all first ones.
    pub(in crate::tier) fn in_flight_for(&mut self, place: u32) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|leg| leg.place == place && !leg.is_done)
    }

    /// Leaves of those that are under way.
    pub(in crate::tier) fn awaited_leaves(&self) -> impl Iterator<Item = LeafId> + '_ {
        self.attempts.iter().filter(|leg| !leg.is_done).map(|leg| leg.leaf)
    }

    /// Ends all that are under way and may be given up, and names them.
    pub(in crate::tier) fn cancel_repeatable(&mut self, mut unwanted: impl FnMut(LeafId, RequestId)) {
        for leg in self.attempts.iter_mut().filter(|leg| !leg.is_done && leg.is_repeatable) {
            leg.is_done = true;
            if let Some(request) = leg.request {
                unwanted(leg.leaf, request);
            }
        }
    }
}
