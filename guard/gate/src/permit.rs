//! An admitted request. Never here: what it does.

use crate::gate::{DequeueCheck, Gate, Rejection};
use crate::outcome::{Outcome, RequestEnd};
use crate::queue::{WaitError, Waiter};
use leeward_core::budget::Budget;
use leeward_core::server;
use leeward_core::units::{Nanos, Time};
use std::time::Duration;

/// An admitted request, until it ends. Dropping the ticket ends it as [`Outcome::Abandoned`].
#[must_use = "a ticket that is dropped is an abandoned request"]
pub struct Permit {
    gate: Gate,
    shard: usize,
    route: u8,
    class: u8,
    arrival: Time,
    /// How long it had waited when it came.
    prior_wait: Nanos,
    cpu_time: Option<Duration>,
    budget: Budget,
    /// Part of the time inside that went to queues there.
    queue_time: Duration,
    /// When its answer began, where that was told.
    answered_at: Option<Time>,
    /// Whether a service behind has refused it; `None`: it has asked none.
    downstream_rejected: Option<bool>,
    /// Its number among those that ask the same services.
    downstream: u8,
    /// Of a gate with a room, until the request has begun.
    dequeue_check: Option<DequeueCheck>,
    /// `None` once it has ended, and in a rehearsal.
    pending: Option<server::PendingRequest>,
}

impl Permit {
    pub(crate) fn new(
        gate: Gate,
        shard: usize,
        (route, class): (u8, u8),
        (came, waited): (Time, Nanos),
        of: Option<server::PendingRequest>,
    ) -> Self {
        let (budget, queued) = (Budget::UNLIMITED, Duration::ZERO);
        Permit {
            gate,
            shard,
            route,
            class,
            arrival: came,
            prior_wait: waited,
            cpu_time: None,
            budget,
            queue_time: queued,
            answered_at: None,
            downstream_rejected: None,
            downstream: route,
            dequeue_check: None,
            pending: of,
        }
    }

    /// The ticket of a request that was let in whatever the verdict: the queue that would be counts in its place.
    pub(crate) fn shadow(gate: Gate, shard: usize, route: u8) -> Self {
        Permit::new(gate, shard, (route, 0), (Time::ZERO, Nanos::ZERO), None)
    }

    pub(crate) fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    pub(crate) fn with_downstream(mut self, number: u8) -> Self {
        self.downstream = number;
        self
    }

    pub(crate) fn with_dequeue_check(mut self, turn: DequeueCheck) -> Self {
        self.dequeue_check = Some(turn);
        self
    }

    /// A seat in the gate's wait room; nothing where there is none, and for a request that has begun. [`Ticket::begin_at`] once the seat
    /// is called.
    ///
    /// # Errors
    /// The room is full of more important requests.
    pub fn enqueue(&self, now: Time) -> Result<Option<Waiter>, WaitError> {
        let (Some(room), Some(turn)) = (&self.gate.0.wait_queue, &self.dequeue_check) else { return Ok(None) };
        if turn.was_idle
            && let Some(seat) = room.try_start(self.class, turn.start_deadline)
        {
            return Ok(Some(seat));
        }
        room.enqueue(now, self.class, turn.start_deadline, self.gate.0.call_ahead()).ok_or(WaitError::Full).map(Some)
    }

    /// The request begins at this time after its wait for a turn, if it was `called`. The time in the room adds to what it had waited
    /// before.
    ///
    /// # Errors
    /// It can't be in time any more, or the room had no place for it: it is refused before any work, and has ended as
    /// [`Outcome::Dropped`].
    pub fn begin_at(mut self, now: Time, called: Result<(), WaitError>) -> Result<Permit, Rejection> {
        let Some(turn) = self.dequeue_check.take() else { return Ok(self) };
        self.prior_wait += now.since(self.arrival);
        self.arrival = self.arrival.max(now);
        if let Err(refusal) = self.gate.check_dequeued((self.shard, self.route), (self.prior_wait, now), &turn, called)
        {
            self.end(Some(now), Outcome::Rejected);
            return Err(refusal);
        }
        self.budget = self.gate.0.queue_budget(turn.timeout, self.route, self.prior_wait);
        Ok(self)
    }

    /// Time that the request may spend in queues inside, for locks to ask for; without a limit in a rehearsal.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Tells how long the request has occupied a worker: time on a CPU, not time that passed.
    pub fn record_cpu_time(&mut self, span: Duration) {
        self.cpu_time = Some(span);
    }

    /// Tells how long the request has waited in queues inside: what locks have charged to its budget.
    pub fn record_queue_time(&mut self, span: Duration) {
        self.queue_time = span;
    }

    /// Tells when the answer has begun, since the gate was made: a client may take as long as it likes to read the rest, which says nothing of
    /// this service. Without it the end counts.
    pub fn record_answer_start(&mut self, now: Time) {
        self.answered_at = Some(now);
    }

    /// Tells that the request has asked another service, and whether it comes to nothing because that one has refused. Where many
    /// do that ask the same ([`crate::Arriving::asks`]), the gate lets in as many as are accepted.
    pub fn record_downstream(&mut self, refused: bool) {
        self.downstream_rejected = Some(refused);
    }

    /// Names the request's route ([`Gate::name_route`]).
    pub fn name_route(&self, name: &str) {
        self.gate.name_route(self.route, name);
    }

    /// The service has no route of that name: the request counts as one without, so that nobody who invents names takes places or changes
    /// what is known of others.
    pub fn clear_route(&mut self) {
        self.route = 0;
    }

    /// Ends the request.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(None, outcome);
    }

    /// The same at a time of the caller's, since the gate was made ([`Gate::at`]). Times never go back.
    pub fn finish_at(mut self, now: Time, outcome: Outcome) {
        self.end(Some(now), outcome);
    }

    /// The gate that let it in.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    fn end(&mut self, now: Option<Time>, outcome: Outcome) {
        let worked = self.cpu_time.take();
        if let Some(span) = worked {
            self.gate.record_cost(self.route, span);
        }
        if let Some(ticket) = self.pending.take() {
            let now = now.unwrap_or_else(|| self.gate.now());
            if let Some(refused) = self.downstream_rejected {
                self.gate.0.downstream.note(now, self.downstream, refused);
            }
            let end = RequestEnd {
                class: self.class,
                route: self.route,
                cpu_time: worked,
                queue_time: self.queue_time,
                answered_at: self.answered_at,
                outcome,
            };
            self.gate.end(self.shard, ticket, (self.arrival, self.prior_wait), now, &end);
        } else if worked.is_some() || outcome == Outcome::Completed {
            self.gate.end_shadow(self.shard, self.route, outcome, worked);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None, Outcome::Abandoned);
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("route", &self.route).field("came", &self.arrival).finish_non_exhaustive()
    }
}
