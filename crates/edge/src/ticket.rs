//! An admitted request. Never here: what it does.

use crate::gate::Gate;
use leeward_control::server;
use leeward_control::units::{Nanos, Time};
use std::time::Duration;

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Completed,
    /// Refused inside, by a lock for instance.
    Dropped,
    /// Gone without an answer: cancelled, panicked, its client gone. Also the end of a ticket that is dropped.
    Abandoned,
}

/// An admitted request, until it ends. Dropping the ticket ends it as [`Outcome::Abandoned`].
#[must_use = "a ticket that is dropped is an abandoned request"]
pub struct Ticket {
    gate: Gate,
    shard: usize,
    route: u8,
    came: Time,
    /// How long it had waited when it came.
    waited: Nanos,
    worked: Option<Duration>,
    /// `None` once it has ended, and in a rehearsal.
    of: Option<server::Ticket>,
}

impl Ticket {
    pub(crate) fn new(gate: Gate, shard: usize, route: u8, (came, waited): (Time, Nanos), of: server::Ticket) -> Self {
        Ticket { gate, shard, route, came, waited, worked: None, of: Some(of) }
    }

    /// The ticket of a request that was let in whatever the verdict: the queue that would be counts in its place.
    pub(crate) fn rehearsed(gate: Gate, route: u8) -> Self {
        Ticket { gate, shard: 0, route, came: Time::ZERO, waited: Nanos::ZERO, worked: None, of: None }
    }

    /// Tells how long the request has occupied a worker: time on a CPU, not time that passed.
    pub fn worked(&mut self, span: Duration) {
        self.worked = Some(span);
    }

    /// Ends the request.
    pub fn finish(self, outcome: Outcome) {
        let now = self.gate.now();
        self.finish_at(now, outcome);
    }

    /// The same at a time of the caller's, as with [`Gate::arrive_at`].
    pub fn finish_at(mut self, now: Time, outcome: Outcome) {
        self.end(now, outcome);
    }

    fn end(&mut self, now: Time, outcome: Outcome) {
        if let Some(span) = self.worked.take() {
            self.gate.learn(self.route, span);
        }
        if let Some(ticket) = self.of.take() {
            self.gate.end(self.shard, ticket, (self.came, self.waited), outcome, now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.of.is_some() || self.worked.is_some() {
            self.end(self.gate.now(), Outcome::Abandoned);
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("route", &self.route).field("came", &self.came).finish_non_exhaustive()
    }
}
