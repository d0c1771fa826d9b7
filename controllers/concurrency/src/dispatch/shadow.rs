//! The queue as it would be if a proxy held requests back, for one that sends all of them at once.
//! Does not contain the queue's decisions ([`super`]): they are those of a dispatcher.
//!
//! The dispatcher's places are taken and freed as if it sent the requests. A request that ends at
//! the backend frees its own place. One that has none, because it would still wait or would have
//! been rejected, frees the oldest place: a backend answers as fast as it can, whoever holds the
//! queue. So no more requests are in this queue than at the backend, and while nothing is at the
//! backend, nothing is rejected (decision 115).

use super::{Answer, Arrival, Dispatch, Dispatcher, QueuedRequest, Refusal};
use leeward_core::units::{Nanos, Tenant, Time};
use std::collections::BTreeMap;

/// Queue and places of the requests that would be admitted. `T` is the owner's token of a request.
pub struct ShadowQueue<T> {
    dispatcher: Dispatcher<(u64, T)>,
    /// Requests that would be at a backend by their numbers: when they were sent, and where.
    sent: BTreeMap<u64, (Time, usize)>,
    /// Number of the next request.
    next: u64,
    done: Vec<Dispatch<(u64, T)>>,
}

impl<T> ShadowQueue<T> {
    /// Creates the queue with a dispatcher that has no requests.
    pub fn new(dispatcher: Dispatcher<(u64, T)>) -> Self {
        ShadowQueue { dispatcher, sent: BTreeMap::new(), next: 0, done: Vec::new() }
    }

    /// Begins anew with a dispatcher that has no requests. Earlier requests may end later.
    pub fn restart(&mut self, dispatcher: Dispatcher<(u64, T)>) {
        *self = ShadowQueue { next: self.next, ..ShadowQueue::new(dispatcher) };
    }

    /// The dispatcher, for what it expects.
    pub fn dispatcher(&self) -> &Dispatcher<(u64, T)> {
        &self.dispatcher
    }

    /// Decides about a request on its arrival; returns its number, and why it would be rejected.
    /// Others that would be rejected now are appended to `rejected`.
    pub fn arrive(
        &mut self,
        now: Time,
        request: &QueuedRequest,
        token: T,
        rejected: &mut Vec<(T, Refusal)>,
    ) -> (u64, Option<Refusal>) {
        let number = self.next;
        self.next += 1;
        let refusal = match self.dispatcher.arrive(now, request, || (number, token), &mut self.done) {
            Arrival::Sent(backend) => {
                self.sent.insert(number, (now, backend));
                None
            }
            Arrival::Queued(_) => None,
            Arrival::Rejected(refusal) => Some(refusal),
        };
        self.settle(now, rejected);
        (number, refusal)
    }

    /// Takes note of an answer to the request with this number. It keeps its place until
    /// [`ShadowQueue::end`].
    pub fn answer(&mut self, number: u64, answer: &Answer) {
        let Some((freed, (sent, backend))) = self.place_of(number) else { return };
        // The time that its client has taken for the request is known of its own answer only.
        let dispatched = if freed == number { sent.max(answer.dispatched) } else { sent };
        self.dispatcher.answer(backend, &Answer { dispatched: dispatched.min(answer.now), ..*answer });
    }

    /// Charges a request to its tenant, as [`Dispatcher::charge`].
    pub fn charge(&mut self, class: u8, tenant: Tenant, time: Nanos) {
        self.dispatcher.charge(class, tenant, time);
    }

    /// Takes note that the request with this number is at the backend no longer.
    pub fn end(&mut self, now: Time, number: u64, rejected: &mut Vec<(T, Refusal)>) {
        let Some((freed, (_, backend))) = self.place_of(number) else { return };
        self.sent.remove(&freed);
        self.dispatcher.release(now, backend, &mut self.done);
        self.settle(now, rejected);
    }

    /// Updates limits and rejects requests that would be late, as [`Dispatcher::tick`].
    pub fn tick(&mut self, now: Time, rejected: &mut Vec<(T, Refusal)>) {
        self.dispatcher.tick(now, None, &mut self.done);
        self.settle(now, rejected);
    }

    /// The place that a request frees: its own, or the oldest.
    fn place_of(&self, number: u64) -> Option<(u64, (Time, usize))> {
        let own = self.sent.get_key_value(&number);
        own.or_else(|| self.sent.first_key_value()).map(|(number, place)| (*number, *place))
    }

    /// Takes what the dispatcher has done with requests that waited.
    fn settle(&mut self, now: Time, rejected: &mut Vec<(T, Refusal)>) {
        for Dispatch { token: (number, token), result } in self.done.drain(..) {
            match result {
                Ok(backend) => drop(self.sent.insert(number, (now, backend))),
                Err(refusal) => rejected.push((token, refusal)),
            }
        }
    }
}

impl<T> std::fmt::Debug for ShadowQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowQueue").field("sent", &self.sent.len()).finish_non_exhaustive()
    }
}
