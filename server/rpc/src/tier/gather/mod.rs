//! A request on its way through a tier: its call, the service's state, and what came. Records are used again.
//!
//! `leg`: its calls as they were made. Never here: which of them are made twice (`leeward_core::hedging`).

pub(super) mod attempt;

use self::attempt::AttemptList;
use super::replies::{ReplyList, ReplyState};
use super::service::{GatherCondition, LeafError, LeafId};
use crate::server::protocol::{Call, CallOutcome, CompletedCall};
use crate::server::{HandlerError, Request};
use crate::wire::RejectCode;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_engine::ConnectionId;

/// A request under way.
pub(super) struct Gather<S> {
    /// Where its answer goes, and the call; `None` between requests.
    pub(super) inbound: Option<InboundCall>,
    pub(super) state: S,
    pub(super) replies: ReplyList,
    pub(super) reply: Vec<u8>,
    pub(super) attempts: AttemptList,
    /// Leaves that it needs, and those where a credit is set aside for it.
    pub(super) required_leaves: Vec<LeafId>,
    pub(super) reserved: Vec<CreditReservation>,
    /// How it goes on when it is ready.
    pub(super) next: NextAction,
    /// When its calls left.
    pub(super) started_at: Time,
    /// Calls that have not ended.
    unfinished: usize,
    /// Results that would be enough.
    wanted: usize,
    /// Results that are enough when everything has been waited for.
    good_enough: usize,
    results: usize,
}

/// A credit that is set aside: at this leaf, in this life of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreditReservation {
    pub(super) leaf: LeafId,
    pub(super) generation: u32,
}

/// How a request that is ready goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// With the replies that have come.
    Resume,
    /// From the beginning, with its credits, which are of this shard.
    Begin(usize),
    /// Not at all: no credits came in time.
    Reject,
}

/// A call that waits for its answer.
pub(super) struct InboundCall {
    pub(super) connection: ConnectionId,
    pub(super) arrival: Time,
    pub(super) call: Call,
}

impl<S: Default> Default for Gather<S> {
    fn default() -> Self {
        Gather {
            inbound: None,
            state: S::default(),
            replies: ReplyList::default(),
            reply: Vec::new(),
            attempts: AttemptList::default(),
            required_leaves: Vec::new(),
            reserved: Vec::new(),
            next: NextAction::Resume,
            started_at: Time::ZERO,
            unfinished: 0,
            wanted: 0,
            good_enough: 0,
            results: 0,
        }
    }
}

impl<S> Gather<S> {
    /// Takes a request whose turn came after `waited`.
    pub(super) fn take(&mut self, to: ConnectionId, arrived: Time, waited: Nanos, mut call: Call) {
        call.queue_budget.charge(waited);
        self.reply = std::mem::take(&mut call.reply);
        self.reply.clear();
        self.inbound = Some(InboundCall { connection: to, arrival: arrived, call });
        self.required_leaves.clear();
        self.reserved.clear();
        self.next = NextAction::Resume;
    }

    /// Queueing delay that the request may still spend.
    pub(super) fn budget(&self) -> Budget {
        self.inbound.as_ref().map_or(Budget::UNLIMITED, |owner| owner.call.queue_budget)
    }

    /// Time since it came.
    pub(super) fn spent(&self, now: Time) -> Nanos {
        self.inbound.as_ref().map_or(Nanos::ZERO, |owner| now.since(owner.arrival))
    }

    /// The calls leave: from now on they are awaited.
    pub(super) fn start_calls(&mut self, now: Time, calls: usize, enough: GatherCondition) {
        self.started_at = now;
        self.replies.begin(calls);
        self.attempts.clear();
        (self.unfinished, self.results) = (calls, 0);
        (self.wanted, self.good_enough) = (enough.wanted(calls), enough.good_enough(calls));
    }

    /// Everything has been waited for: from now on it is enough if it is good enough.
    pub(super) fn accept_good_enough(&mut self) {
        self.wanted = self.good_enough;
    }

    /// A call has ended, with a result or without; `None`: it had ended before.
    pub(super) fn finish_call(&mut self, news: Option<bool>) {
        if let Some(is_result) = news {
            self.unfinished -= 1;
            self.results += usize::from(is_result);
        }
    }

    /// A call ends here, without a result.
    pub(super) fn fail_call(&mut self, place: usize) {
        let news = self.replies.note(place, ReplyState::Failed(LeafError::Invalid)).then_some(false);
        self.finish_call(news);
    }

    /// Whether the request can go on.
    pub(super) fn is_enough(&self) -> bool {
        self.unfinished == 0 || self.results >= self.wanted
    }

    /// The request ends before it has begun: where the drop goes, and the drop.
    pub(super) fn reject(&mut self, reason: RejectCode) -> Option<(ConnectionId, CompletedCall)> {
        let InboundCall { connection: to, call, .. } = self.inbound.take()?;
        Some((
            to,
            CompletedCall { call_ref: call.call_ref, outcome: CallOutcome::Rejected(reason), spare: call.payload },
        ))
    }

    /// The request has ended: where its answer goes, and the answer.
    pub(super) fn answer(&mut self, outcome: Result<(), HandlerError>) -> Option<(ConnectionId, CompletedCall)> {
        let InboundCall { connection: to, call, .. } = self.inbound.take()?;
        let reply = std::mem::take(&mut self.reply);
        Some((
            to,
            CompletedCall {
                call_ref: call.call_ref,
                outcome: CallOutcome::Executed { outcome, reply },
                spare: call.payload,
            },
        ))
    }
}

impl InboundCall {
    /// The request as its service sees it.
    pub(super) fn request(&self) -> Request<'_> {
        let Call { method, budget, payload, peer, .. } = &self.call;
        Request { method: *method, payload, arrival: self.arrival, budget: *budget, peer: peer.as_deref() }
    }
}
