//! Credits that are set aside before a request begins, at all leaves that it needs or at none, and requests that wait for them. Never here:
//! which leaves a request needs (the service's), how long it may wait.

use super::{Shard, WaitingRequests};
use crate::tier::gather::{CreditReservation, Gather, NextAction};
use crate::tier::link::ReserveOutcome;
use crate::tier::service::LeafId;
use leeward_core::units::Time;
use std::collections::VecDeque;

/// Requests that may wait for credits; more are dropped.
const PARKED_MAX: usize = 4_096;
/// Requests at the head of those that wait that are tried when credits may have come.
const PARKED_TRIES: usize = 16;

/// Requests that wait for credits, and until when each does.
pub(super) struct ParkedRequests<S> {
    requests: VecDeque<(Time, Box<Gather<S>>)>,
    /// When the first of them may give up; earlier is no harm.
    next_deadline: Time,
}

impl<S> Default for ParkedRequests<S> {
    fn default() -> Self {
        ParkedRequests { requests: VecDeque::new(), next_deadline: Time::NEVER }
    }
}

impl<S> ParkedRequests<S> {
    /// When somebody is to look at them though no credit comes.
    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }
}

impl<S> Shard<S> {
    /// Sets a credit aside at each leaf that a request needs and that is there. Whether it has all of them; it has none else.
    pub(in crate::tier) fn reserve(&mut self, gather: &mut Gather<S>) -> bool {
        let now = self.clock.now();
        for place in 0..gather.required_leaves.len() {
            match self.reserve_one(gather.required_leaves[place], now) {
                Ok(made) => gather.reserved.extend(made),
                Err(()) => {
                    self.release(gather);
                    return false;
                }
            }
        }
        true
    }

    /// A credit at a leaf with this part, `None` if none of them is there.
    fn reserve_one(&mut self, part: LeafId, now: Time) -> Result<Option<CreditReservation>, ()> {
        let (copies, parts) = (self.settings.copies as u64, self.settings.parts_of_data() as u64);
        let first = if copies > 1 { self.random.below(copies) } else { 0 };
        let mut outcome = Ok(None);
        for copy in (0..copies).map(|step| (first + step) % copies) {
            // Below the number of leaves.
            let leaf = LeafId((u64::from(part.0) + copy * parts) as u16);
            match self.links.get_mut(usize::from(leaf.0)).map(|link| link.reserve(now)) {
                Some(ReserveOutcome::Reserved(life)) => return Ok(Some(CreditReservation { leaf, generation: life })),
                Some(ReserveOutcome::NoCredit) => outcome = Err(()),
                Some(ReserveOutcome::Unavailable) | None => {}
            }
        }
        outcome
    }

    /// Gives back what a request has reserved and not used.
    pub(in crate::tier) fn release(&mut self, gather: &mut Gather<S>) {
        let now = self.clock.now();
        let Shard { links, requests: waiting, .. } = self;
        for CreditReservation { leaf, generation: life } in gather.reserved.drain(..) {
            if let Some(link) = links.get_mut(usize::from(leaf.0)) {
                link.release(now, life, &mut |event| waiting.take(&event));
            }
        }
    }

    /// Tells the leaves of so many requests that wait here for their credits.
    pub(in crate::tier) fn set_waiting(&mut self, requests: usize) {
        let (now, requests) = (self.clock.now(), u32::try_from(requests).unwrap_or(u32::MAX));
        let Shard { links, requests: waiting, .. } = self;
        for link in links.iter_mut() {
            link.set_waiting(now, requests, &mut |event| waiting.take(&event));
        }
    }

    /// Whether nobody waits for credits here: those that do go first.
    pub(in crate::tier) fn has_no_parked(&self) -> bool {
        self.parked.requests.is_empty()
    }

    /// Has a request wait for its credits until then; gives it back if too many do. It is ready when it waits no more.
    pub(in crate::tier) fn park(&mut self, gather: Box<Gather<S>>, until: Time) -> Option<Box<Gather<S>>> {
        if self.parked.requests.len() >= PARKED_MAX {
            return Some(gather);
        }
        self.parked.requests.push_back((until, gather));
        self.parked.next_deadline = self.parked.next_deadline.min(until);
        self.set_waiting(self.parked.requests.len());
        let now = self.clock.now();
        self.exchange_links(now);
        // Its timer is armed again at the next look.
        let _ = self.arm(now);
        None
    }

    /// Lets those go on that get their credits, and ends those that have waited too long.
    pub(super) fn serve_parked(&mut self, now: Time) {
        if self.parked.requests.is_empty() {
            return;
        }
        let before = self.parked.requests.len();
        if now >= self.parked.next_deadline {
            let Shard { parked, requests: WaitingRequests { ready, .. }, .. } = self;
            parked.next_deadline = Time::NEVER;
            let mut left = VecDeque::with_capacity(before);
            for (until, mut gather) in parked.requests.drain(..) {
                if now >= until {
                    gather.next = NextAction::Reject;
                    ready.push(gather);
                } else {
                    parked.next_deadline = parked.next_deadline.min(until);
                    left.push_back((until, gather));
                }
            }
            parked.requests = left;
        }
        let mut place = 0;
        for _ in 0..PARKED_TRIES {
            let Some((until, mut gather)) = self.parked.requests.remove(place) else { break };
            if self.reserve(&mut gather) {
                gather.next = NextAction::Begin(self.index.unwrap_or_default());
                self.requests.ready.push(gather);
            } else {
                self.parked.requests.insert(place, (until, gather));
                place += 1;
            }
        }
        let left = self.parked.requests.len();
        if left != before {
            self.set_waiting(left);
            self.move_bytes();
        }
    }
}
