//! A tier's connection to one leaf, over its lives. As the client's link, but for what it is for: the bytes of a result go where the request
//! is, without a copy of their own, and calls may be submitted before the leaf's welcome.

use super::leaves::Settings;
use crate::client::driver::attempts::Attempts;
use crate::client::driver::life::Life;
use crate::client::driver::random::Random;
use crate::client::{Disconnected, Event, Request};
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
pub(super) enum Reserve {
    /// A call may leave, in this life.
    Made(u32),
    /// None may leave now.
    Closed,
    /// The leaf is not there, and holds nobody back.
    Away,
}

pub(super) struct Link<T> {
    /// The leaf's place in the list, and the poll's token.
    leaf: usize,
    settings: Arc<Settings>,
    life: Option<Box<Life<T>>>,
    /// Whether the leaf of this life is known to be the right one.
    is_known: bool,
    /// How many lives there were: a reservation ends with its life.
    lives: u32,
    /// Since when the leaf has had something to answer, if it has.
    owes: Time,
    /// Whether a permission was asked for and not given while it had nothing to answer.
    was_closed: bool,
    /// Whether it has said nothing for too long: it counts as away until it does.
    is_silent: bool,
    /// Life that a request has waited for already.
    awaited: u32,
    /// Whether a connection that was up is lost, and none has been tried since.
    is_missed: bool,
    /// Name of the question what the leaf serves.
    question: T,
    attempts: Attempts,
}

impl<T: Copy + PartialEq> Link<T> {
    /// A link whose own question has this name, which no call has.
    pub(super) fn new(leaf: usize, settings: &Arc<Settings>, question: T) -> Self {
        let attempts = Attempts::new(settings.backoff);
        let settings = Arc::clone(settings);
        Link {
            leaf,
            settings,
            life: None,
            is_known: false,
            lives: 0,
            owes: Time::ZERO,
            was_closed: false,
            is_silent: false,
            awaited: 0,
            is_missed: true,
            question,
            attempts,
        }
    }

    /// Whether the leaf is there, the right one, and not silent.
    pub(super) fn is_up(&self) -> bool {
        self.is_known && !self.is_silent && self.life.as_ref().is_some_and(|life| life.is_ready())
    }

    /// Whether the leaf is not there, and a request that waits until then may find it: each life is waited for once, and the first attempt after a
    /// loss.
    pub(super) fn may_come(&self, until: Time) -> bool {
        !self.is_up()
            && !self.is_silent
            && match self.life {
                Some(_) => self.awaited != self.lives,
                None => self.is_missed && self.attempts.due() <= until,
            }
    }

    /// A request has waited for as long as it may.
    pub(super) fn was_awaited(&mut self) {
        (self.awaited, self.is_missed) = (self.lives, false);
    }

    /// Makes the next attempt due: others have a connection to the leaf.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.life.is_none() {
            self.is_missed |= self.attempts.due() > now;
            self.attempts.hurry(now);
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
        let Some(life) = self.life.as_mut().filter(|_| self.is_known && !self.is_silent) else {
            events(Event::Disconnected { token, at: Disconnected::Waiting });
            return None;
        };
        self.owes = owes_since(life, self.owes, now);
        match budget.remaining() {
            None => life.say().submit(now, token, request, events),
            Some(left) => life.say().submit_within(now, token, request, wire::Budget::of(left), events),
        }
    }

    /// Sets the permission for a call aside.
    pub(super) fn reserve(&mut self, now: Time) -> Reserve {
        let lives = self.lives;
        let Some(life) = self.up() else { return Reserve::Away };
        if life.connection().reserve(now) {
            return Reserve::Made(lives);
        }
        // One that has stopped with all its permissions taken back owes nothing, and would hold everybody back.
        if life.connection().in_flight() == 0 && !self.was_closed {
            (self.owes, self.was_closed) = (now, true);
        }
        Reserve::Closed
    }

    /// Gives a reservation back, which was made in this life.
    pub(super) fn release(&mut self, now: Time, life: u32, events: &mut impl FnMut(Event<'_, T>)) {
        if let Some(there) = self.life.as_mut().filter(|_| self.lives == life) {
            there.say().release(now, events);
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
        match self.life.as_mut().filter(|_| self.lives == life) {
            None => self.submit(now, token, request, budget, events),
            Some(life) => {
                self.owes = owes_since(life, self.owes, now);
                let budget = budget.remaining().map(wire::Budget::of);
                life.say().submit_reserved(now, token, request, budget, events)
            }
        }
    }

    /// Tells the leaf of so many requests that wait elsewhere for permission here.
    pub(super) fn set_waiting(&mut self, now: Time, requests: u32, events: &mut impl FnMut(Event<'_, T>)) {
        // One that is silent, too: it will read that when it goes on.
        if let Some(life) = self.life.as_mut().filter(|life| self.is_known && life.is_ready()) {
            life.say().set_waiting_elsewhere(now, requests, events);
        }
    }

    /// Gives a call up. Whether it had no end yet; it has none then.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, events: &mut impl FnMut(Event<'_, T>)) -> bool {
        self.life.as_mut().is_some_and(|life| life.say().cancel(now, request, events).is_some())
    }

    /// Notes whether a leaf of which something is wanted has said nothing for so long, a sign of life included: half of it passes before it is asked for
    /// one, for a single call may take long. To be called when all that has come was read. Whether it has changed, or has a question to send.
    pub(super) fn watch(&mut self, now: Time, silence: Nanos) -> bool {
        let before = self.is_silent;
        self.is_silent = false;
        let Some(life) = self.life.as_mut() else { return before };
        if !life.is_ready() {
            // A thread that has looked at nothing for a while finds the welcome late, and no leaf is to blame: one request waits for it first.
            self.is_silent = self.awaited == self.lives;
            return before != self.is_silent;
        }
        let is_wanted = self.was_closed || life.connection().in_flight() > 0;
        self.was_closed &= life.heard() < self.owes;
        let half = silence / 2;
        if !is_wanted || now.since(life.heard().max(self.owes)) <= half {
            return before;
        }
        let asked = life.ask(now);
        self.is_silent = asked < now && now.since(asked) >= half;
        before != self.is_silent || asked == now
    }

    /// The life of a leaf that is there, the right one, and not silent.
    fn up(&mut self) -> Option<&mut Box<Life<T>>> {
        self.life.as_mut().filter(|life| self.is_known && !self.is_silent && life.is_ready())
    }

    /// Calls that are unanswered; as many as there may be if the leaf is not there.
    pub(super) fn in_flight(&mut self) -> u32 {
        self.up().map_or(u32::MAX, |life| life.connection().in_flight())
    }

    /// The leaf's window; `None` if it does not bind, or the leaf is not there.
    pub(super) fn window(&mut self) -> Option<u32> {
        let life = self.up()?;
        Some(life.connection().allowed()).filter(|allowed| *allowed < u32::MAX)
    }

    /// Calls that the leaf allows to be unanswered; 0 if it is not there.
    pub(super) fn allowed(&mut self) -> u32 {
        self.up().map_or(0, |life| life.connection().allowed())
    }

    /// Does what is due: the next attempt at a connection, its limit, a sign of life, calls that expire.
    pub(super) fn on_timer(
        &mut self,
        now: Time,
        registry: &Registry,
        random: &mut Random,
        events: &mut impl FnMut(Event<'_, T>),
    ) {
        let Some(life) = &mut self.life else {
            if now >= self.attempts.due() {
                self.connect(now, registry, random);
            }
            return;
        };
        let question = self.question;
        let others = &mut |event: Event<'_, T>| {
            if *event.token() != question {
                events(event);
            }
        };
        if life.on_timer(now, others).is_err() {
            self.lose(now, random, events);
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.life.as_mut().map_or(self.attempts.due(), |life| life.next_timeout(now))
    }

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        self.is_missed = false;
        let address = *self.attempts.next(&self.settings.leaves[self.leaf].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let at = (registry, Token(self.leaf));
        match parts.and_then(|parts| Life::open(address, parts, self.settings.terms(self.attempts.version()), at, now))
        {
            Ok(mut life) => {
                self.lives = self.lives.wrapping_add(1);
                (self.is_silent, self.was_closed) = (false, false);
                self.is_known = !self.settings.fitting.asks();
                if !self.is_known {
                    // It goes with the registration: that the leaf is right is known when its welcome is.
                    let question = Request {
                        method: statistics::METHOD,
                        payload: &[],
                        priority: Priority::HIGHEST,
                        random: random.draw(),
                    };
                    life.say().submit(now, self.question, &question, &mut |_| {});
                }
                self.life = Some(Box::new(life));
            }
            Err(_) => self.rest(now, random),
        }
    }

    /// The poll says something about the socket.
    pub(super) fn on_readiness(&mut self, readiness: &Readiness) {
        if let Some(life) = &mut self.life {
            life.on_readiness(readiness);
        }
    }

    /// Whether [`Link::exchange`] has something to do, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_busy())
    }

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, clock: &Clock, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let Link { life: Some(life), is_known, question, settings, leaf, .. } = self else { return };
        let (question, mut verdict) = (*question, Ok(()));
        let moved = life.exchange(clock, &mut |event| {
            if *event.token() != question {
                return events(event);
            }
            // One that ends otherwise ends with its connection.
            if let Event::Completed { payload, .. } = event {
                let told = Statistics::parse(payload).ok().map(|statistics| statistics.about);
                verdict = settings.fitting.judge(*leaf, told.as_ref());
                *is_known = verdict.is_ok();
            }
        });
        if moved.is_err() || verdict.is_err() {
            self.lose(clock.now(), random, events);
        }
    }

    /// The connection is over, and so is all that it had.
    fn lose(&mut self, now: Time, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let life = self.life.take();
        self.is_missed |= life.as_ref().is_some_and(|life| life.has_held(now, Nanos::ZERO));
        let question = self.question;
        let events = &mut |event: Event<'_, T>| {
            if *event.token() != question {
                events(event);
            }
        };
        let refuses_version = life.as_ref().is_some_and(|life| life.refuses_version());
        if let Some(life) = life {
            // A leaf that accepts connections and never says its welcome has not held.
            if life.has_held(now, self.attempts.longest()) {
                self.attempts.held();
            }
            life.close(now, events);
        }
        self.rest(now, random);
        if refuses_version {
            self.attempts.version_was_refused(now);
        }
    }

    fn rest(&mut self, now: Time, random: &mut Random) {
        self.attempts.ended(now, self.settings.leaves[self.leaf].addresses.len(), random);
    }

    /// The tier ends: says good-bye if the leaf listens.
    pub(super) fn leave(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        let question = self.question;
        if let Some(life) = self.life.take() {
            life.leave(now, &mut |event: Event<'_, T>| {
                if *event.token() != question {
                    events(event);
                }
            });
        }
    }
}

/// Since when a leaf that is called now has had something to answer: it was called before at a time, and may owe that still.
fn owes_since<T: Copy + PartialEq>(life: &mut Life<T>, before: Time, now: Time) -> Time {
    if life.connection().in_flight() == 0 { now } else { before }
}
