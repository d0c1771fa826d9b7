//! A tier's connection to one leaf, over its lives. As the client's link, but for what it is for: the bytes of a result go where the request
//! is, without a copy of their own, and calls may be submitted before the leaf's welcome.

use super::leaves::Settings;
use crate::client::driver::connect_attempts::ConnectAttempts;
use crate::client::driver::random::Random;
use crate::client::driver::socket_connection::SocketConnection;
use crate::client::{Event, Request, RequestStage};
use crate::statistics::{self, Statistics};
use crate::wire::{self, RequestId};
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_runtime::Clock;
use mio::event::Event as Readiness;
use mio::{Registry, Token};
use std::io;
use std::sync::Arc;

/// Outcome of asking for permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveOutcome {
    /// A call may leave, in this life.
    Reserved(u32),
    /// None may leave now.
    NoCredit,
    /// The leaf is not there, and holds nobody back.
    Unavailable,
}

pub(super) struct Link<T> {
    /// The leaf's place in the list, and the poll's token.
    leaf: usize,
    settings: Arc<Settings>,
    socket_connection: Option<Box<SocketConnection<T>>>,
    /// Whether the leaf of this life is known to be the right one.
    is_validated: bool,
    /// How many lives there were: a reservation ends with its life.
    generation: u32,
    /// Since when the leaf has had something to answer, if it has.
    owing_since: Time,
    /// Whether a permission was asked for and not given while it had nothing to answer.
    was_denied: bool,
    /// Whether it has said nothing for too long: it counts as away until it does.
    is_silent: bool,
    /// Life that a request has waited for already.
    awaited_generation: u32,
    /// Whether a connection that was up is lost, and none has been tried since.
    needs_attempt: bool,
    /// Name of the question what the leaf serves.
    validation_token: T,
    attempts: ConnectAttempts,
}

impl<T: Copy + PartialEq> Link<T> {
    /// A link whose own question has this name, which no call has.
    pub(super) fn new(leaf: usize, settings: &Arc<Settings>, question: T) -> Self {
        let attempts = ConnectAttempts::new(settings.backoff);
        let settings = Arc::clone(settings);
        Link {
            leaf,
            settings,
            socket_connection: None,
            is_validated: false,
            generation: 0,
            owing_since: Time::ZERO,
            was_denied: false,
            is_silent: false,
            awaited_generation: 0,
            needs_attempt: true,
            validation_token: question,
            attempts,
        }
    }

    /// Whether the leaf is there, the right one, and not silent.
    pub(super) fn is_up(&self) -> bool {
        self.is_validated && !self.is_silent && self.socket_connection.as_ref().is_some_and(|life| life.is_ready())
    }

    /// Whether the leaf is not there, and a request that waits until then may find it: each life is waited for once, and the first attempt after a
    /// loss.
    pub(super) fn may_connect(&self, until: Time) -> bool {
        !self.is_up()
            && !self.is_silent
            && match self.socket_connection {
                Some(_) => self.awaited_generation != self.generation,
                None => self.needs_attempt && self.attempts.next_at() <= until,
            }
    }

    /// A request has waited for as long as it may.
    pub(super) fn mark_awaited(&mut self) {
        (self.awaited_generation, self.needs_attempt) = (self.generation, false);
    }

    /// Makes the next attempt due: others have a connection to the leaf.
    pub(super) fn expedite(&mut self, now: Time) {
        if self.socket_connection.is_none() {
            self.needs_attempt |= self.attempts.next_at() > now;
            self.attempts.expedite(now);
        }
    }

    /// Submits a call. It leaves with the next [`Link::exchange`], waits, or ends here.
    pub(super) fn submit(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        let Some(life) = self.socket_connection.as_mut().filter(|_| self.is_validated && !self.is_silent) else {
            events(Event::Disconnected { token, stage: RequestStage::Waiting });
            return None;
        };
        self.owing_since = owes_since(life, self.owing_since, now);
        match budget.remaining() {
            None => life.writer().submit(now, token, request, events),
            Some(left) => life.writer().submit_within(now, token, request, wire::Budget::of(left), events),
        }
    }

    /// Sets the permission for a call aside.
    pub(super) fn reserve(&mut self, now: Time) -> ReserveOutcome {
        let lives = self.generation;
        let Some(life) = self.up() else { return ReserveOutcome::Unavailable };
        if life.connection().reserve(now) {
            return ReserveOutcome::Reserved(lives);
        }
        // One that has stopped with all its permissions taken back owes nothing, and would hold everybody back.
        if life.connection().in_flight() == 0 && !self.was_denied {
            (self.owing_since, self.was_denied) = (now, true);
        }
        ReserveOutcome::NoCredit
    }

    /// Gives a reservation back, which was made in this life.
    pub(super) fn release(&mut self, now: Time, life: u32, events: &mut impl FnMut(Event<'_, T>)) {
        if let Some(there) = self.socket_connection.as_mut().filter(|_| self.generation == life) {
            there.writer().release(now, events);
        }
    }

    /// Submits a call on a reservation that was made in this life; without it as any other.
    pub(super) fn submit_reserved(
        &mut self,
        now: Time,
        token: T,
        (request, life): (&Request<'_>, u32),
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        match self.socket_connection.as_mut().filter(|_| self.generation == life) {
            None => self.submit(now, token, request, budget, events),
            Some(life) => {
                self.owing_since = owes_since(life, self.owing_since, now);
                let budget = budget.remaining().map(wire::Budget::of);
                life.writer().submit_reserved(now, token, request, budget, events)
            }
        }
    }

    /// Tells the leaf of so many requests that wait elsewhere for permission here.
    pub(super) fn set_waiting(&mut self, now: Time, requests: u32, events: &mut impl FnMut(Event<'_, T>)) {
        // One that is silent, too: it will read that when it goes on.
        if let Some(life) = self.socket_connection.as_mut().filter(|life| self.is_validated && life.is_ready()) {
            life.writer().set_waiting_elsewhere(now, requests, events);
        }
    }

    /// Gives a call up. Whether it had no end yet; it has none then.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, events: &mut impl FnMut(Event<'_, T>)) -> bool {
        self.socket_connection.as_mut().is_some_and(|life| life.writer().cancel(now, request, events).is_some())
    }

    /// Notes whether a leaf of which something is wanted has said nothing for so long, a sign of life included: half of it passes before it is asked for
    /// one, for a single call may take long. To be called when all that has come was read. Whether it has changed, or has a question to send.
    pub(super) fn check_silence(&mut self, now: Time, silence: Nanos) -> bool {
        let before = self.is_silent;
        self.is_silent = false;
        let Some(life) = self.socket_connection.as_mut() else { return before };
        if !life.is_ready() {
            // A thread that has looked at nothing for a while finds the welcome late, and no leaf is to blame: one request waits for it first.
            self.is_silent = self.awaited_generation == self.generation;
            return before != self.is_silent;
        }
        let is_wanted = self.was_denied || life.connection().in_flight() > 0;
        self.was_denied &= life.last_received() < self.owing_since;
        let half = silence / 2;
        if !is_wanted || now.since(life.last_received().max(self.owing_since)) <= half {
            return before;
        }
        let asked = life.ping(now);
        self.is_silent = asked < now && now.since(asked) >= half;
        before != self.is_silent || asked == now
    }

    /// The life of a leaf that is there, the right one, and not silent.
    fn up(&mut self) -> Option<&mut Box<SocketConnection<T>>> {
        self.socket_connection.as_mut().filter(|life| self.is_validated && !self.is_silent && life.is_ready())
    }

    /// Calls that are unanswered; as many as there may be if the leaf is not there.
    pub(super) fn in_flight(&mut self) -> u32 {
        self.up().map_or(u32::MAX, |life| life.connection().in_flight())
    }

    /// The leaf's window; `None` if it does not bind, or the leaf is not there.
    pub(super) fn window(&mut self) -> Option<u32> {
        let life = self.up()?;
        Some(life.connection().window()).filter(|allowed| *allowed < u32::MAX)
    }

    /// Calls that the leaf allows to be unanswered; 0 if it is not there.
    pub(super) fn allowed(&mut self) -> u32 {
        self.up().map_or(0, |life| life.connection().window())
    }

    /// Does what is due: the next attempt at a connection, its limit, a sign of life, calls that expire.
    pub(super) fn on_timer(
        &mut self,
        now: Time,
        registry: &Registry,
        random: &mut Random,
        events: &mut impl FnMut(Event<'_, T>),
    ) {
        let Some(life) = &mut self.socket_connection else {
            if now >= self.attempts.next_at() {
                self.connect(now, registry, random);
            }
            return;
        };
        let question = self.validation_token;
        let others = &mut |event: Event<'_, T>| {
            if *event.token() != question {
                events(event);
            }
        };
        if life.on_timer(now, others).is_err() {
            self.disconnect(now, random, events);
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.socket_connection.as_mut().map_or(self.attempts.next_at(), |life| life.next_timeout(now))
    }

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        self.needs_attempt = false;
        let address = *self.attempts.next(&self.settings.leaves[self.leaf].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let at = (registry, Token(self.leaf));
        match parts.and_then(|parts| {
            SocketConnection::open(address, parts, self.settings.limits(self.attempts.version()), at, now)
        }) {
            Ok(mut life) => {
                self.generation = self.generation.wrapping_add(1);
                (self.is_silent, self.was_denied) = (false, false);
                self.is_validated = !self.settings.validation.is_enabled();
                if !self.is_validated {
                    // It goes with the registration: that the leaf is right is known when its welcome is.
                    let question = Request {
                        method: statistics::METHOD,
                        payload: &[],
                        priority: Priority::HIGHEST,
                        random: random.draw(),
                    };
                    life.writer().submit(now, self.validation_token, &question, &mut |_| {});
                }
                self.socket_connection = Some(Box::new(life));
            }
            Err(_) => self.schedule_reconnect(now, random),
        }
    }

    /// The poll says something about the socket.
    pub(super) fn on_readiness(&mut self, readiness: &Readiness) {
        if let Some(life) = &mut self.socket_connection {
            life.on_readiness(readiness);
        }
    }

    /// Whether [`Link::exchange`] has something to do, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.socket_connection.as_ref().is_some_and(|life| life.is_busy())
    }

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, clock: &Clock, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let Link {
            socket_connection: Some(life),
            is_validated: is_known,
            validation_token: question,
            settings,
            leaf,
            ..
        } = self
        else {
            return;
        };
        let (question, mut verdict) = (*question, Ok(()));
        let moved = life.exchange(clock, &mut |event| {
            if *event.token() != question {
                return events(event);
            }
            // One that ends otherwise ends with its connection.
            if let Event::Completed { payload, .. } = event {
                let told = Statistics::parse(payload).ok().map(|statistics| statistics.about);
                verdict = settings.validation.validate(*leaf, told.as_ref());
                *is_known = verdict.is_ok();
            }
        });
        if moved.is_err() || verdict.is_err() {
            self.disconnect(clock.now(), random, events);
        }
    }

    /// The connection is over, and so is all that it had.
    fn disconnect(&mut self, now: Time, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let life = self.socket_connection.take();
        self.needs_attempt |= life.as_ref().is_some_and(|life| life.has_lasted(now, Nanos::ZERO));
        let question = self.validation_token;
        let events = &mut |event: Event<'_, T>| {
            if *event.token() != question {
                events(event);
            }
        };
        let refuses_version = life.as_ref().is_some_and(|life| life.refuses_version());
        if let Some(life) = life {
            // A leaf that accepts connections and never says its welcome has not held.
            if life.has_lasted(now, self.attempts.stable_after()) {
                self.attempts.reset();
            }
            life.close(now, events);
        }
        self.schedule_reconnect(now, random);
        if refuses_version {
            self.attempts.downgrade_version(now);
        }
    }

    fn schedule_reconnect(&mut self, now: Time, random: &mut Random) {
        self.attempts.record_end(now, self.settings.leaves[self.leaf].addresses.len(), random);
    }

    /// The tier ends: says good-bye if the leaf listens.
    pub(super) fn leave(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        let question = self.validation_token;
        if let Some(life) = self.socket_connection.take() {
            life.leave(now, &mut |event: Event<'_, T>| {
                if *event.token() != question {
                    events(event);
                }
            });
        }
    }
}

/// Since when a leaf that is called now has had something to answer: it was called before at a time, and may owe that still.
fn owes_since<T: Copy + PartialEq>(life: &mut SocketConnection<T>, before: Time, now: Time) -> Time {
    if life.connection().in_flight() == 0 { now } else { before }
}
