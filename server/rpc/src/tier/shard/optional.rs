//! Calls to slow leaves that their requests can do without.
//!
//! Such a call leaves only where the leaf's credits permit it at once and the leaf still responds.
//! Does not contain the judgement of a leaf (`leeward_core::hedging::SlowLeaves`).

use super::Shard;
use crate::tier::calls::CallList;
use crate::tier::service::{GatherCondition, LeafId};
use leeward_core::units::Time;
use std::time::Duration;

/// Need of a request for one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallNeed {
    /// The request can't do without any part.
    Needed,
    /// The request can do without some part, and waits for this one.
    Wanted,
    /// The leaf is slow, and the request can do without it.
    Spare,
}

impl<S> Shard<S> {
    /// Number of calls to slow leaves, if the request can do without all of them; otherwise 0.
    ///
    /// Reads the input of the connections if any leaf is slow.
    pub(super) fn spare_calls(&mut self, calls: &CallList, enough: GatherCondition) -> usize {
        let most = enough.spare(calls.len());
        if most == 0 || !self.requests.counts.credits.has_slow(self.clock.now()) {
            return 0;
        }
        // A thread that owns the shard has not read since its last request.
        let _ = self.poll(Some(Duration::ZERO));
        let is_slow = |index: &usize| calls.get(*index).is_some_and(|call| self.is_slow(call.leaf));
        let slow = (0..calls.len()).filter(is_slow).count();
        if slow <= most { slow } else { 0 }
    }

    /// Whether all leaves with this part of the data are slow.
    pub(super) fn is_slow(&self, part: LeafId) -> bool {
        let parts = self.settings.parts_of_data();
        let mut copies = (0..self.settings.copies).map(|copy| usize::from(part.0) + copy * parts);
        copies.all(|leaf| self.requests.counts.credits.is_slow(leaf))
    }

    /// Whether a slow leaf responds, and its credits permit a call at once.
    pub(super) fn may_call_slow(&mut self, leaf: LeafId, now: Time) -> bool {
        let leaf = usize::from(leaf.0);
        let Some(link) = self.links.get_mut(leaf) else { return false };
        if let Some(since) = link.stalled_since(now, self.waits.stall_timeout()) {
            self.requests.counts.credits.record_stall(leaf, since, now);
            return false;
        }
        link.would_send(now)
    }
}
