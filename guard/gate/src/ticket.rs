//! An admitted request. Never here: what it does.

use crate::gate::{Gate, Refusal, Turn};
use crate::outcome::{End, Outcome};
use crate::room::{Out, Seat};
use leeward_core::budget::Budget;
use leeward_core::server;
use leeward_core::units::{Nanos, Time};
use std::time::Duration;

/// An admitted request, until it ends. Dropping the ticket ends it as [`Outcome::Abandoned`].
#[must_use = "a ticket that is dropped is an abandoned request"]
pub struct Ticket {
    gate: Gate,
    shard: usize,
    route: u8,
    class: u8,
    came: Time,
    /// How long it had waited when it came.
    waited: Nanos,
    worked: Option<Duration>,
    budget: Budget,
    /// Part of the time inside that went to queues there.
    queued: Duration,
    /// When its answer began, where that was told.
    answered: Option<Time>,
    /// Whether a service behind has refused it; `None`: it has asked none.
    behind: Option<bool>,
    /// Its number among those that ask the same services.
    asks: u8,
    /// Of a gate with a room, until the request has begun.
    turn: Option<Turn>,
    /// `None` once it has ended, and in a rehearsal.
    of: Option<server::Ticket>,
}

impl Ticket {
    pub(crate) fn new(
        gate: Gate,
        shard: usize,
        (route, class): (u8, u8),
        (came, waited): (Time, Nanos),
        of: Option<server::Ticket>,
    ) -> Self {
        let (budget, queued) = (Budget::UNLIMITED, Duration::ZERO);
        Ticket {
            gate,
            shard,
            route,
            class,
            came,
            waited,
            worked: None,
            budget,
            queued,
            answered: None,
            behind: None,
            asks: route,
            turn: None,
            of,
        }
    }

    /// The ticket of a request that was let in whatever the verdict: the queue that would be counts in its place.
    pub(crate) fn rehearsed(gate: Gate, shard: usize, route: u8) -> Self {
        Ticket::new(gate, shard, (route, 0), (Time::ZERO, Nanos::ZERO), None)
    }

    pub(crate) fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    pub(crate) fn asking(mut self, number: u8) -> Self {
        self.asks = number;
        self
    }

    pub(crate) fn with_turn(mut self, turn: Turn) -> Self {
        self.turn = Some(turn);
        self
    }

    /// A seat in the gate's wait room; nothing where there is none, and for a request that has begun. [`Ticket::begin_at`] once the seat
    /// is called.
    ///
    /// # Errors
    /// The room is full of more important requests.
    pub fn seat(&self, now: Time) -> Result<Option<Seat>, Out> {
        let (Some(room), Some(turn)) = (&self.gate.0.waiting, &self.turn) else { return Ok(None) };
        if turn.is_calm
            && let Some(seat) = room.start(self.class, turn.until)
        {
            return Ok(Some(seat));
        }
        room.enter(now, self.class, turn.until, self.gate.0.ahead()).ok_or(Out::Full).map(Some)
    }

    /// The request begins at this time after its wait for a turn, if it was `called`. The time in the room adds to what it had waited
    /// before.
    ///
    /// # Errors
    /// It can't be in time any more, or the room had no place for it: it is refused before any work, and has ended as
    /// [`Outcome::Dropped`].
    pub fn begin_at(mut self, now: Time, called: Result<(), Out>) -> Result<Ticket, Refusal> {
        let Some(turn) = self.turn.take() else { return Ok(self) };
        self.waited += now.since(self.came);
        self.came = self.came.max(now);
        if let Err(refusal) = self.gate.turn((self.shard, self.route), (self.waited, now), &turn, called) {
            self.end(Some(now), Outcome::Dropped);
            return Err(refusal);
        }
        self.budget = self.gate.0.for_queues(turn.left, self.route, self.waited);
        Ok(self)
    }

    /// Time that the request may spend in queues inside, for locks to ask for; without a limit in a rehearsal.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Tells how long the request has occupied a worker: time on a CPU, not time that passed.
    pub fn worked(&mut self, span: Duration) {
        self.worked = Some(span);
    }

    /// Tells how long the request has waited in queues inside: what locks have charged to its budget.
    pub fn queued(&mut self, span: Duration) {
        self.queued = span;
    }

    /// Tells when the answer has begun, since the gate was made: a client may take as long as it likes to read the rest, which says nothing of
    /// this service. Without it the end counts.
    pub fn answers_at(&mut self, now: Time) {
        self.answered = Some(now);
    }

    /// Tells that the request has asked another service, and whether it comes to nothing because that one has refused. Where many
    /// do that ask the same ([`crate::Arriving::asks`]), the gate lets in as many as are accepted.
    pub fn behind(&mut self, refused: bool) {
        self.behind = Some(refused);
    }

    /// Names the request's route ([`Gate::name_route`]).
    pub fn name_route(&self, name: &str) {
        self.gate.name_route(self.route, name);
    }

    /// The service has no route of that name: the request counts as one without, so that nobody who invents names takes places or changes
    /// what is known of others.
    pub fn without_route(&mut self) {
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
        let worked = self.worked.take();
        if let Some(span) = worked {
            self.gate.learn(self.route, span);
        }
        if let Some(ticket) = self.of.take() {
            let now = now.unwrap_or_else(|| self.gate.now());
            if let Some(refused) = self.behind {
                self.gate.0.behind.note(now, self.asks, refused);
            }
            let end = End {
                class: self.class,
                route: self.route,
                worked,
                queued: self.queued,
                answered: self.answered,
                outcome,
            };
            self.gate.end(self.shard, ticket, (self.came, self.waited), now, &end);
        } else if worked.is_some() || outcome == Outcome::Completed {
            self.gate.end_rehearsed(self.shard, self.route, outcome, worked);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(None, Outcome::Abandoned);
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("route", &self.route).field("came", &self.came).finish_non_exhaustive()
    }
}
