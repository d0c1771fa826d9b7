//! A request on its way through a tier: its call, the service's state, and what came. Records are used again.
//!
//! `leg`: its calls as they were made. Never here: which of them are made twice (`leeward_core::hedging`).

pub(super) mod leg;

use self::leg::Legs;
use super::replies::{Came, ReplyList};
use super::service::{Enough, LeafError, LeafId};
use crate::server::protocol::{Call, Done, End};
use crate::server::{Failed, Request};
use crate::wire::DropReason;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_engine::ConnectionId;

/// A request under way.
pub(super) struct Gather<S> {
    /// Where its answer goes, and the call; `None` between requests.
    pub(super) owner: Option<Owner>,
    pub(super) state: S,
    pub(super) replies: ReplyList,
    pub(super) reply: Vec<u8>,
    pub(super) legs: Legs,
    /// Leaves that it needs, and those where a credit is set aside for it.
    pub(super) needs: Vec<LeafId>,
    pub(super) reserved: Vec<Reserved>,
    /// How it goes on when it is ready.
    pub(super) next: Next,
    /// When its calls left.
    pub(super) began: Time,
    /// Calls that have not ended.
    left: usize,
    /// Results that would be enough.
    wanted: usize,
    /// Results that are enough when everything has been waited for.
    good_enough: usize,
    results: usize,
}

/// A credit that is set aside: at this leaf, in this life of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) leaf: LeafId,
    pub(super) life: u32,
}

/// How a request that is ready goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With the replies that have come.
    Resume,
    /// From the beginning, with its credits, which are of this shard.
    Begin(usize),
    /// Not at all: no credits came in time.
    Drop,
}

/// A call that waits for its answer.
pub(super) struct Owner {
    pub(super) to: ConnectionId,
    pub(super) arrived: Time,
    pub(super) call: Call,
}

impl<S: Default> Default for Gather<S> {
    fn default() -> Self {
        Gather {
            owner: None,
            state: S::default(),
            replies: ReplyList::default(),
            reply: Vec::new(),
            legs: Legs::default(),
            needs: Vec::new(),
            reserved: Vec::new(),
            next: Next::Resume,
            began: Time::ZERO,
            left: 0,
            wanted: 0,
            good_enough: 0,
            results: 0,
        }
    }
}

impl<S> Gather<S> {
    /// Takes a request whose turn came after `waited`.
    pub(super) fn take(&mut self, to: ConnectionId, arrived: Time, waited: Nanos, mut call: Call) {
        call.may_spend.charge(waited);
        self.reply = std::mem::take(&mut call.reply);
        self.reply.clear();
        self.owner = Some(Owner { to, arrived, call });
        self.needs.clear();
        self.reserved.clear();
        self.next = Next::Resume;
    }

    /// Queueing delay that the request may still spend.
    pub(super) fn budget(&self) -> Budget {
        self.owner.as_ref().map_or(Budget::UNLIMITED, |owner| owner.call.may_spend)
    }

    /// Time since it came.
    pub(super) fn spent(&self, now: Time) -> Nanos {
        self.owner.as_ref().map_or(Nanos::ZERO, |owner| now.since(owner.arrived))
    }

    /// The calls leave: from now on they are awaited.
    pub(super) fn begin(&mut self, now: Time, calls: usize, enough: Enough) {
        self.began = now;
        self.replies.begin(calls);
        self.legs.clear();
        (self.left, self.results) = (calls, 0);
        (self.wanted, self.good_enough) = (enough.wanted(calls), enough.good_enough(calls));
    }

    /// Everything has been waited for: from now on it is enough if it is good enough.
    pub(super) fn be_content(&mut self) {
        self.wanted = self.good_enough;
    }

    /// A call has ended, with a result or without; `None`: it had ended before.
    pub(super) fn ended(&mut self, news: Option<bool>) {
        if let Some(is_result) = news {
            self.left -= 1;
            self.results += usize::from(is_result);
        }
    }

    /// A call ends here, without a result.
    pub(super) fn refuse(&mut self, place: usize) {
        let news = self.replies.note(place, Came::Failed(LeafError::Refused)).then_some(false);
        self.ended(news);
    }

    /// Whether the request can go on.
    pub(super) fn is_enough(&self) -> bool {
        self.left == 0 || self.results >= self.wanted
    }

    /// The request ends before it has begun: where the drop goes, and the drop.
    pub(super) fn drop_for(&mut self, reason: DropReason) -> Option<(ConnectionId, Done)> {
        let Owner { to, call, .. } = self.owner.take()?;
        Some((to, Done { whose: call.whose, end: End::Late(reason), spare: call.payload }))
    }

    /// The request has ended: where its answer goes, and the answer.
    pub(super) fn answer(&mut self, outcome: Result<(), Failed>) -> Option<(ConnectionId, Done)> {
        let Owner { to, call, .. } = self.owner.take()?;
        let reply = std::mem::take(&mut self.reply);
        Some((to, Done { whose: call.whose, end: End::Executed { outcome, reply }, spare: call.payload }))
    }
}

impl Owner {
    /// The request as its service sees it.
    pub(super) fn request(&self) -> Request<'_> {
        let Call { method, budget, payload, peer, .. } = &self.call;
        Request { method: *method, payload, arrived: self.arrived, budget: *budget, peer: peer.as_deref() }
    }
}
