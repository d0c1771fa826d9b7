//! Hedging policies of a tier's second calls, and their counters.
//!
//! [`leeward_core::hedging`] decides on second calls, as in a real tier. Each thread of a sync
//! setup has its own policy; response threads share those of their links.

use super::event::ReplyReceiver;
use super::model::{Leaves, SecondCalls, TailModel};
use leeward_core::hedging::HedgingPolicy;
use leeward_outcome::SecondCallOutcome;

/// Hedging policies and counters of a tier.
pub(super) struct SecondCallState {
    tails: TailModel,
    leaves: usize,
    thread_rules: Vec<HedgingPolicy>,
    link_rules: Vec<HedgingPolicy>,
    pub(super) counts: SecondCallOutcome,
    /// Counters at the end of the warm-up.
    before: SecondCallOutcome,
}

impl SecondCallState {
    pub(super) fn new(leaves: &Leaves) -> Self {
        SecondCallState {
            tails: leaves.tails,
            leaves: usize::from(leaves.count),
            thread_rules: Vec::new(),
            link_rules: Vec::new(),
            counts: SecondCallOutcome::default(),
            before: SecondCallOutcome::default(),
        }
    }

    /// The policy for the receiver of a call's reply; `None` if calls have one attempt.
    pub(super) fn rules(&mut self, to: ReplyReceiver) -> Option<&mut HedgingPolicy> {
        let (policies, index) = match to {
            _ if self.tails.second_calls == SecondCalls::Never => return None,
            ReplyReceiver::Own(thread) => (&mut self.thread_rules, thread as usize),
            ReplyReceiver::Links(link) => (&mut self.link_rules, usize::from(link)),
            ReplyReceiver::Helper(_) => return None,
        };
        while policies.len() <= index {
            policies.push(HedgingPolicy::new(self.leaves));
        }
        policies.get_mut(index)
    }

    pub(super) fn end_warmup(&mut self) {
        self.before = self.counts;
    }

    /// Counts a response.
    pub(super) fn record_response(&mut self, is_partial: bool) {
        self.counts.answered += 1;
        self.counts.partial += u64::from(is_partial);
    }

    /// Counters since the warm-up; `None` if leaves have no tail model.
    pub(super) fn outcome(&self) -> Option<SecondCallOutcome> {
        let (now, earlier) = (&self.counts, &self.before);
        (self.tails != TailModel::default()).then(|| SecondCallOutcome {
            calls: now.calls - earlier.calls,
            hedged: now.hedged - earlier.hedged,
            retried: now.retried - earlier.retried,
            answered: now.answered - earlier.answered,
            partial: now.partial - earlier.partial,
        })
    }
}
