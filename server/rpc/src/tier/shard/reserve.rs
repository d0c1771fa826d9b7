//! Credits reserved before a request begins, at all leaves that it needs or at none, and requests
//! that wait for them.
//!
//! Does not contain the leaves that a request needs (the service names them), or the length of the
//! wait.

use super::{Shard, WaitingRequests};
use crate::tier::gather::{CreditReservation, Gather, NextAction};
use crate::tier::link::ReserveOutcome;
use crate::tier::service::LeafId;
use leeward_core::units::Time;
use std::collections::VecDeque;

/// Requests that may wait for credits; more are rejected.
const PARKED_MAX: usize = 4_096;
/// Waiting requests tried per poll, from the head of the queue, when credits may have arrived.
const PARKED_TRIES: usize = 16;

/// Requests that wait for credits, each with its deadline.
pub(super) struct ParkedRequests<S> {
    requests: VecDeque<(Time, Box<Gather<S>>)>,
    /// Earliest deadline of the waiting requests, or a time before it.
    next_deadline: Time,
}

impl<S> Default for ParkedRequests<S> {
    fn default() -> Self {
        ParkedRequests { requests: VecDeque::new(), next_deadline: Time::NEVER }
    }
}

impl<S> ParkedRequests<S> {
    /// Time of the next poll if no credit arrives.
    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }
}

impl<S> Shard<S> {
    /// Reserves a credit at each reachable leaf that a request needs. A slow leaf that the request
    /// can do without holds it back no more than an unreachable one.
    ///
    /// Returns whether the request has all of them; otherwise it has none.
    pub(in crate::tier) fn reserve(&mut self, gather: &mut Gather<S>) -> bool {
        let now = self.clock.now();
        let mut spare = if self.requests.counts.credits.has_slow(now) { gather.spare_leaves } else { 0 };
        for index in 0..gather.required_leaves.len() {
            let leaf = gather.required_leaves[index];
            match self.reserve_one(leaf, now) {
                Ok(made) => gather.reserved.extend(made),
                Err(()) if spare > 0 && self.is_slow(leaf) => spare -= 1,
                Err(()) if self.holds_all(gather, leaf) => {}
                Err(()) => {
                    self.release(gather);
                    return false;
                }
            }
        }
        true
    }

    /// Whether a request holds every credit of the leaves with this part of the data. With more
    /// calls than that it would wait for ever: replies bring the credits for the rest.
    fn holds_all(&mut self, gather: &Gather<S>, part: LeafId) -> bool {
        let parts = self.settings.parts_of_data();
        let is_of_part = |reserved: &&CreditReservation| usize::from(reserved.leaf.0) % parts == usize::from(part.0);
        let held = gather.reserved.iter().filter(is_of_part).count() as u64;
        let copies = self.links.iter_mut().skip(usize::from(part.0)).step_by(parts);
        held > 0 && held >= copies.map(|link| u64::from(link.allowed())).sum()
    }

    /// Reserves a credit at a leaf with this part of the data; `None` if no copy is reachable.
    fn reserve_one(&mut self, part: LeafId, now: Time) -> Result<Option<CreditReservation>, ()> {
        let (copies, parts) = (self.settings.copies as u64, self.settings.parts_of_data() as u64);
        let first = if copies > 1 { self.random.below(copies) } else { 0 };
        let mut outcome = Ok(None);
        for copy in (0..copies).map(|step| (first + step) % copies) {
            // Below the number of leaves.
            let leaf = LeafId((u64::from(part.0) + copy * parts) as u16);
            match self.links.get_mut(usize::from(leaf.0)).map(|link| link.reserve(now)) {
                Some(ReserveOutcome::Reserved(reserved_in)) => {
                    return Ok(Some(CreditReservation { leaf, generation: reserved_in }));
                }
                Some(ReserveOutcome::NoCredit) => outcome = Err(()),
                Some(ReserveOutcome::Unavailable) | None => {}
            }
        }
        outcome
    }

    /// Releases the reservations that a request has not used.
    pub(in crate::tier) fn release(&mut self, gather: &mut Gather<S>) {
        let now = self.clock.now();
        let Shard { links, requests: waiting, .. } = self;
        for CreditReservation { leaf, generation: reserved_in } in gather.reserved.drain(..) {
            if let Some(link) = links.get_mut(usize::from(leaf.0)) {
                link.release(now, reserved_in, &mut |event| waiting.take(&event));
            }
        }
    }

    /// Reports to the leaves how many requests wait here for their credits.
    pub(in crate::tier) fn set_waiting(&mut self, requests: usize) {
        let (now, requests) = (self.clock.now(), u32::try_from(requests).unwrap_or(u32::MAX));
        let Shard { links, requests: waiting, .. } = self;
        for link in links.iter_mut() {
            link.set_waiting(now, requests, &mut |event| waiting.take(&event));
        }
    }

    /// Whether no request waits for credits here: waiting requests go first.
    pub(in crate::tier) fn has_no_parked(&self) -> bool {
        self.parked.requests.is_empty()
    }

    /// Queues a request for its credits until `until`; the request becomes ready when its wait
    /// ends.
    ///
    /// Returns the request if the queue is full.
    pub(in crate::tier) fn park(&mut self, gather: Box<Gather<S>>, until: Time) -> Option<Box<Gather<S>>> {
        if self.parked.requests.len() >= PARKED_MAX {
            return Some(gather);
        }
        self.parked.requests.push_back((until, gather));
        self.parked.next_deadline = self.parked.next_deadline.min(until);
        self.set_waiting(self.parked.requests.len());
        let now = self.clock.now();
        self.exchange_links(now);
        // The next poll arms the timer again.
        let _ = self.arm(now);
        None
    }

    /// Makes requests ready that get their credits, or whose deadline has passed.
    pub(super) fn serve_parked(&mut self, now: Time) {
        if self.parked.requests.is_empty() {
            return;
        }
        let before = self.parked.requests.len();
        if now >= self.parked.next_deadline {
            let Shard { parked, requests: WaitingRequests { ready, .. }, .. } = self;
            parked.next_deadline = Time::NEVER;
            let mut remaining = VecDeque::with_capacity(before);
            for (until, mut gather) in parked.requests.drain(..) {
                if now >= until {
                    gather.next = NextAction::Reject;
                    ready.push(gather);
                } else {
                    parked.next_deadline = parked.next_deadline.min(until);
                    remaining.push_back((until, gather));
                }
            }
            parked.requests = remaining;
        }
        let mut index = 0;
        for _ in 0..PARKED_TRIES {
            let Some((until, mut gather)) = self.parked.requests.remove(index) else { break };
            if self.reserve(&mut gather) {
                gather.next = NextAction::Begin(self.index.unwrap_or_default());
                self.requests.ready.push(gather);
            } else {
                self.parked.requests.insert(index, (until, gather));
                index += 1;
            }
        }
        let remaining = self.parked.requests.len();
        if remaining != before {
            self.set_waiting(remaining);
            self.move_bytes();
        }
    }
}
