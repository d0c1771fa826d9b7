//! A request on its way through a tier: its call, the service's state, and what came. Records are used again.

use super::replies::{Came, ReplyList};
use super::service::Enough;
use crate::server::protocol::{Call, Done, End};
use crate::server::{Failed, Request};
use leeward_control::budget::Budget;
use leeward_control::units::{Nanos, Time};
use leeward_port::ConnectionId;

/// A request under way.
pub(super) struct Gather<S> {
    /// Where its answer goes, and the call; `None` between requests.
    pub(super) owner: Option<Owner>,
    pub(super) state: S,
    pub(super) replies: ReplyList,
    pub(super) reply: Vec<u8>,
    /// Calls that have not ended.
    left: usize,
    /// Results that would be enough.
    wanted: usize,
    results: usize,
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
            left: 0,
            wanted: 0,
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
    }

    /// Queueing delay that the request may still spend.
    pub(super) fn budget(&self) -> Budget {
        self.owner.as_ref().map_or(Budget::UNLIMITED, |owner| owner.call.may_spend)
    }

    /// The calls leave: from now on they are awaited.
    pub(super) fn begin(&mut self, calls: usize, enough: Enough) {
        self.replies.begin(calls);
        (self.left, self.results) = (calls, 0);
        self.wanted = match enough {
            Enough::Quorum(results) => usize::from(results),
            Enough::All | Enough::Within(_) => usize::MAX,
        };
    }

    /// A call has ended, with a result or without; `None`: it had ended before.
    pub(super) fn ended(&mut self, news: Option<bool>) {
        if let Some(is_result) = news {
            self.left -= 1;
            self.results += usize::from(is_result);
        }
    }

    /// A call ends here.
    pub(super) fn refuse(&mut self, place: usize, came: Came) {
        let news = self.replies.note(place, came).then_some(false);
        self.ended(news);
    }

    /// Whether the request can go on.
    pub(super) fn is_enough(&self) -> bool {
        self.left == 0 || self.results >= self.wanted
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
        let Call { method, budget, payload, .. } = &self.call;
        Request { method: *method, payload, arrived: self.arrived, budget: *budget }
    }
}
