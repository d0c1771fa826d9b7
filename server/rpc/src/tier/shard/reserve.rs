//! Credits reserved before a request begins, at all leaves that it needs or at none, and requests
//! that wait for them.
//!
//! Does not contain the leaves that a request needs (the service names them), or the length of the
//! wait.

use super::Shard;
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
    /// Calls of the requests that wait here or on their thread, by the part of the data.
    calls: Vec<u32>,
    /// Leaves that requests tried in this poll lack; kept for its memory.
    lacking: Vec<LeafId>,
}

impl<S> ParkedRequests<S> {
    pub(super) fn new(parts_of_data: usize) -> Self {
        ParkedRequests {
            requests: VecDeque::new(),
            next_deadline: Time::NEVER,
            calls: vec![0; parts_of_data],
            lacking: Vec::with_capacity(PARKED_TRIES),
        }
    }

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
        self.reserve_except(gather, &[]).is_ok()
    }

    /// The same, as if the leaves in `lacking` had no credit. Fails with the leaf without credit.
    fn reserve_except(&mut self, gather: &mut Gather<S>, lacking: &[LeafId]) -> Result<(), LeafId> {
        let now = self.clock.now();
        let mut spare = if self.requests.counts.credits.has_slow(now) { gather.spare_leaves } else { 0 };
        for index in 0..gather.required_leaves.len() {
            let leaf = gather.required_leaves[index];
            let made = if lacking.contains(&leaf) { Err(()) } else { self.reserve_one(leaf, now) };
            match made {
                Ok(made) => gather.reserved.extend(made),
                Err(()) if spare > 0 && self.is_slow(leaf) => spare -= 1,
                Err(()) if self.is_free_but_for(gather, leaf) => {}
                Err(()) => {
                    self.release(gather);
                    return Err(leaf);
                }
            }
        }
        Ok(())
    }

    /// Whether the leaves with this part of the data have no unanswered calls, and no reservations
    /// but this request's. No reply will permit more: with more calls it would wait for ever.
    ///
    /// The windows do not tell: an algorithm may limit calls at its clients only.
    fn is_free_but_for(&mut self, gather: &Gather<S>, part: LeafId) -> bool {
        let parts = self.settings.parts_of_data();
        let is_of_part = |reserved: &&CreditReservation| usize::from(reserved.leaf.0) % parts == usize::from(part.0);
        let held = gather.reserved.iter().filter(is_of_part).count() as u64;
        let copies = self.links.iter_mut().skip(usize::from(part.0)).step_by(parts);
        held > 0 && held == copies.map(|link| u64::from(link.taken())).sum::<u64>()
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

    /// Adds a request's calls to those that wait for their credits.
    pub(in crate::tier) fn begin_wait(&mut self, gather: &Gather<S>) {
        gather.required_leaves.iter().for_each(|leaf| self.parked.calls[usize::from(leaf.0)] += 1);
    }

    /// Removes a request's calls from those that wait for their credits.
    pub(in crate::tier) fn end_wait(&mut self, gather: &Gather<S>) {
        gather.required_leaves.iter().for_each(|leaf| self.parked.calls[usize::from(leaf.0)] -= 1);
    }

    /// Reports to the leaves how many calls wait here for their credits. Copies share them.
    pub(in crate::tier) fn report_waiting(&mut self) {
        let (now, copies) = (self.clock.now(), self.settings.copies as u32);
        let Shard { links, requests: waiting, parked, .. } = self;
        for (link, calls) in links.iter_mut().zip(parked.calls.iter().cycle()) {
            link.set_waiting(now, calls.div_ceil(copies), &mut |event| waiting.take(&event));
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
        self.begin_wait(&gather);
        self.parked.requests.push_back((until, gather));
        self.parked.next_deadline = self.parked.next_deadline.min(until);
        self.report_waiting();
        let now = self.clock.now();
        self.exchange_links(now);
        // The next poll arms the timer again.
        let _ = self.arm(now);
        None
    }

    /// Makes requests ready that get their credits, or whose deadline has passed.
    ///
    /// A leaf that an earlier request lacks keeps its credits for that one. Otherwise requests with
    /// fewer calls would take each that comes back, until its deadline.
    pub(super) fn serve_parked(&mut self, now: Time) {
        if self.parked.requests.is_empty() {
            return;
        }
        let before = self.parked.requests.len();
        if now >= self.parked.next_deadline {
            self.parked.next_deadline = Time::NEVER;
            let mut remaining = VecDeque::with_capacity(before);
            for (until, mut gather) in std::mem::take(&mut self.parked.requests) {
                if now >= until {
                    self.end_wait(&gather);
                    gather.next = NextAction::Reject;
                    self.requests.ready.push(gather);
                } else {
                    self.parked.next_deadline = self.parked.next_deadline.min(until);
                    remaining.push_back((until, gather));
                }
            }
            self.parked.requests = remaining;
        }
        let mut lacking = std::mem::take(&mut self.parked.lacking);
        let mut index = 0;
        for _ in 0..PARKED_TRIES {
            let Some((until, mut gather)) = self.parked.requests.remove(index) else { break };
            match self.reserve_except(&mut gather, &lacking) {
                Ok(()) => {
                    self.end_wait(&gather);
                    gather.next = NextAction::Begin(self.index.unwrap_or_default());
                    self.requests.ready.push(gather);
                }
                Err(leaf) => {
                    lacking.push(leaf);
                    self.parked.requests.insert(index, (until, gather));
                    index += 1;
                }
            }
        }
        lacking.clear();
        self.parked.lacking = lacking;
        if self.parked.requests.len() != before {
            self.report_waiting();
            self.move_bytes();
        }
    }
}
