//! Rules of second calls, and counts of what came of them. When a second call is allowed is decided by [`leeward_core::hedging`], as
//! in a real tier: a thread of a sync setup has rules of its own, response threads share those of their links.

use super::event::ReplyReceiver;
use super::model::{Leaves, SecondCalls, TailModel};
use leeward_core::hedging::HedgingPolicy;
use leeward_outcome::SecondCallOutcome;

/// Rules of second calls, and counts of what came of them.
pub(super) struct SecondCallState {
    tails: TailModel,
    leaves: usize,
    thread_rules: Vec<HedgingPolicy>,
    link_rules: Vec<HedgingPolicy>,
    pub(super) counts: SecondCallOutcome,
    /// The counts when the measured part began.
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

    /// The rules that hold for the receiver of a call's news; `None` where no call is made twice.
    pub(super) fn rules(&mut self, to: ReplyReceiver) -> Option<&mut HedgingPolicy> {
        let (all, place) = match to {
            _ if self.tails.second_calls == SecondCalls::Never => return None,
            ReplyReceiver::Own(thread) => (&mut self.thread_rules, thread as usize),
            ReplyReceiver::Links(link) => (&mut self.link_rules, usize::from(link)),
            ReplyReceiver::Helper(_) => return None,
        };
        while all.len() <= place {
            all.push(HedgingPolicy::new(self.leaves));
        }
        all.get_mut(place)
    }

    pub(super) fn end_warmup(&mut self) {
        self.before = self.counts;
    }

    /// A request has been answered.
    pub(super) fn record_response(&mut self, is_partial: bool) {
        self.counts.answered += 1;
        self.counts.partial += u64::from(is_partial);
    }

    /// Counts of the measured part; `None` where leaves are neither late nor asked twice.
    pub(super) fn outcome(&self) -> Option<SecondCallOutcome> {
        let (now, then) = (&self.counts, &self.before);
        (self.tails != TailModel::default()).then(|| SecondCallOutcome {
            calls: now.calls - then.calls,
            hedged: now.hedged - then.hedged,
            retried: now.retried - then.retried,
            answered: now.answered - then.answered,
            partial: now.partial - then.partial,
        })
    }
}
