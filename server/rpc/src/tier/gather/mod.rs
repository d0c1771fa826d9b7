//! A request on its way through a tier: its call, the service's state and the replies.
//!
//! The records are reused. `attempt`: the calls as they were sent. Does not contain which calls are
//! sent twice (`leeward_core::hedging`).

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

/// A request in progress.
pub(super) struct Gather<S> {
    /// The call and the connection for its response; `None` between requests.
    pub(super) inbound: Option<InboundCall>,
    pub(super) state: S,
    pub(super) replies: ReplyList,
    pub(super) reply: Vec<u8>,
    pub(super) attempts: AttemptList,
    /// Leaves that the request needs; `reserved` has those with a reserved credit.
    pub(super) required_leaves: Vec<LeafId>,
    /// Number of these leaves that the request can do without.
    pub(super) spare_leaves: usize,
    pub(super) reserved: Vec<CreditReservation>,
    /// Action when the request is ready.
    pub(super) next: NextAction,
    /// Time at which its calls left.
    pub(super) started_at: Time,
    /// Calls that have not ended.
    unfinished: usize,
    /// Results after which the request goes on at once.
    wanted: usize,
    /// Results that suffice once the wait for all results is over.
    good_enough: usize,
    results: usize,
    /// Results without which the replies are incomplete.
    complete: usize,
    /// Whether a step has continued with incomplete replies.
    pub(super) is_partial: bool,
}

/// A reserved credit at a leaf, valid for one generation of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreditReservation {
    pub(super) leaf: LeafId,
    pub(super) generation: u32,
}

/// Action for a request that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Continue with the replies that have arrived.
    Resume,
    /// Begin with the credits reserved on the shard of this index.
    Begin(usize),
    /// Reject: the credits did not arrive in time.
    Reject,
}

/// A call that waits for its response.
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
            spare_leaves: 0,
            reserved: Vec::new(),
            next: NextAction::Resume,
            started_at: Time::ZERO,
            unfinished: 0,
            wanted: 0,
            good_enough: 0,
            results: 0,
            complete: 0,
            is_partial: false,
        }
    }
}

impl<S> Gather<S> {
    /// Takes a request that left the queue after `waited`.
    pub(super) fn take(&mut self, client: ConnectionId, arrived: Time, waited: Nanos, mut call: Call) {
        call.queue_budget.charge(waited);
        self.reply = std::mem::take(&mut call.reply);
        self.reply.clear();
        self.inbound = Some(InboundCall { connection: client, arrival: arrived, call });
        self.required_leaves.clear();
        self.reserved.clear();
        self.next = NextAction::Resume;
        self.is_partial = false;
    }

    /// Queueing delay that the request may still spend.
    pub(super) fn budget(&self) -> Budget {
        self.inbound.as_ref().map_or(Budget::UNLIMITED, |inbound| inbound.call.queue_budget)
    }

    /// Time since the request arrived.
    pub(super) fn spent(&self, now: Time) -> Nanos {
        self.inbound.as_ref().map_or(Nanos::ZERO, |inbound| now.since(inbound.arrival))
    }

    /// Records that `calls` calls leave; the request waits for them from now on.
    pub(super) fn start_calls(&mut self, now: Time, calls: usize, enough: GatherCondition) {
        self.started_at = now;
        self.replies.begin(calls);
        self.attempts.clear();
        (self.unfinished, self.results) = (calls, 0);
        self.complete = enough.complete(calls);
        (self.wanted, self.good_enough) = (enough.wanted(calls), enough.good_enough(calls));
    }

    /// Sets the number of results that suffice once the wait for all results is over.
    pub(super) fn set_good_enough(&mut self, results: usize) {
        self.good_enough = results;
    }

    /// Ends the wait for all results: from now on a good-enough number suffices.
    pub(super) fn accept_good_enough(&mut self) {
        self.wanted = self.good_enough;
    }

    /// Counts a call that has ended: `Some(true)` with a result, `None` if it had ended before.
    pub(super) fn finish_call(&mut self, outcome: Option<bool>) {
        if let Some(is_result) = outcome {
            self.unfinished -= 1;
            self.results += usize::from(is_result);
        }
    }

    /// Ends a call locally, without a result.
    pub(super) fn fail_call(&mut self, index: usize, error: LeafError) {
        let outcome = self.replies.note(index, ReplyState::Failed(error)).then_some(false);
        self.finish_call(outcome);
    }

    /// Whether the request can continue.
    pub(super) fn is_enough(&self) -> bool {
        self.unfinished == 0 || self.results >= self.wanted
    }

    /// Ends the wait for replies, and records whether some are missing.
    pub(super) fn end_calls(&mut self) {
        self.is_partial |= self.results < self.complete;
    }

    /// Ends the request before it has begun; returns the connection and the rejection.
    pub(super) fn reject(&mut self, reason: RejectCode) -> Option<(ConnectionId, CompletedCall)> {
        let InboundCall { connection: client, call, .. } = self.inbound.take()?;
        Some((
            client,
            CompletedCall { call_ref: call.call_ref, outcome: CallOutcome::Rejected(reason), spare: call.payload },
        ))
    }

    /// Ends the request; returns the connection and its response.
    pub(super) fn answer(&mut self, outcome: Result<(), HandlerError>) -> Option<(ConnectionId, CompletedCall)> {
        let InboundCall { connection: client, call, .. } = self.inbound.take()?;
        let reply = std::mem::take(&mut self.reply);
        Some((
            client,
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
