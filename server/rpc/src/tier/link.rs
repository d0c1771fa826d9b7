//! A tier's connection to one leaf, with its reconnections.
//!
//! It differs from the client's link in two ways. Result bytes go straight to the request, without
//! a copy. Calls may be submitted before the leaf's welcome message.

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

/// Outcome of a request for credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveOutcome {
    /// A call may leave, in this generation of the connection.
    Reserved(u32),
    /// No credit is available now.
    NoCredit,
    /// The leaf is unreachable, and holds no request back.
    Unavailable,
}

pub(super) struct Link<T> {
    /// Index of the leaf in the list, also the poll token.
    leaf: usize,
    settings: Arc<Settings>,
    socket_connection: Option<Box<SocketConnection<T>>>,
    /// Whether the validator has accepted the leaf of this generation.
    is_validated: bool,
    /// Number of connections opened so far; a reservation ends with its generation.
    generation: u32,
    /// Reservations of this generation that no call has used yet.
    reserved: u32,
    /// Time since which the leaf has owed a response, if it owes one.
    owing_since: Time,
    /// Whether a call was denied credit while the leaf owed nothing.
    was_denied: bool,
    /// Whether the leaf has been silent for too long; it counts as unreachable until it sends
    /// something.
    is_silent: bool,
    /// Generation that a request has waited for already.
    awaited_generation: u32,
    /// Whether an open connection was lost, without an attempt since.
    needs_attempt: bool,
    /// Token of the validation call.
    validation_token: T,
    attempts: ConnectAttempts,
}

impl<T: Copy + PartialEq> Link<T> {
    /// Creates a link. No other call may use the token `question`.
    pub(super) fn new(leaf: usize, settings: &Arc<Settings>, question: T) -> Self {
        let attempts = ConnectAttempts::new(settings.backoff);
        let settings = Arc::clone(settings);
        Link {
            leaf,
            settings,
            socket_connection: None,
            is_validated: false,
            generation: 0,
            reserved: 0,
            owing_since: Time::ZERO,
            was_denied: false,
            is_silent: false,
            awaited_generation: 0,
            needs_attempt: true,
            validation_token: question,
            attempts,
        }
    }

    /// Whether the leaf is connected, validated and not silent.
    pub(super) fn is_up(&self) -> bool {
        self.is_validated && !self.is_silent && self.socket_connection.as_ref().is_some_and(|socket| socket.is_ready())
    }

    /// Whether the leaf is down, but may connect before `until`.
    ///
    /// A request waits once for each generation, and for the first attempt after a loss.
    pub(super) fn may_connect(&self, until: Time) -> bool {
        !self.is_up()
            && !self.is_silent
            && match self.socket_connection {
                Some(_) => self.awaited_generation != self.generation,
                None => self.needs_attempt && self.attempts.next_at() <= until,
            }
    }

    /// Records that a request has waited as long as it may.
    pub(super) fn mark_awaited(&mut self) {
        (self.awaited_generation, self.needs_attempt) = (self.generation, false);
    }

    /// Makes the next attempt due now, because other shards have a connection to the leaf.
    pub(super) fn expedite(&mut self, now: Time) {
        if self.socket_connection.is_none() {
            self.needs_attempt |= self.attempts.next_at() > now;
            self.attempts.expedite(now);
        }
    }

    /// Submits a call, which leaves with the next [`Link::exchange`], waits, or ends here.
    pub(super) fn submit(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        let Some(socket) = self.socket_connection.as_mut().filter(|_| self.is_validated && !self.is_silent) else {
            events(Event::Disconnected { token, stage: RequestStage::Waiting });
            return None;
        };
        self.owing_since = owes_since(socket, self.owing_since, now);
        match budget.remaining() {
            None => socket.writer().submit(now, token, request, events),
            Some(remaining) => socket.writer().submit_within(now, token, request, wire::Budget::of(remaining), events),
        }
    }

    /// Reserves the credit for a call.
    pub(super) fn reserve(&mut self, now: Time) -> ReserveOutcome {
        let generation = self.generation;
        let Some(socket) = self.up() else { return ReserveOutcome::Unavailable };
        if socket.connection().reserve(now) {
            self.reserved += 1;
            return ReserveOutcome::Reserved(generation);
        }
        // A leaf that has stopped and revoked all its credits owes nothing, and would block every
        // request.
        if socket.connection().in_flight() == 0 && !self.was_denied {
            (self.owing_since, self.was_denied) = (now, true);
        }
        ReserveOutcome::NoCredit
    }

    /// Returns a reservation of `generation`.
    pub(super) fn release(&mut self, now: Time, generation: u32, events: &mut impl FnMut(Event<'_, T>)) {
        if let Some(there) = self.socket_connection.as_mut().filter(|_| self.generation == generation) {
            self.reserved -= 1;
            there.writer().release(now, events);
        }
    }

    /// Submits a call on a reservation of `generation`; if that is over, as an ordinary call.
    pub(super) fn submit_reserved(
        &mut self,
        now: Time,
        token: T,
        (request, generation): (&Request<'_>, u32),
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        match self.socket_connection.as_mut().filter(|_| self.generation == generation) {
            None => self.submit(now, token, request, budget, events),
            Some(socket) => {
                self.reserved -= 1;
                self.owing_since = owes_since(socket, self.owing_since, now);
                let budget = budget.remaining().map(wire::Budget::of);
                socket.writer().submit_reserved(now, token, request, budget, events)
            }
        }
    }

    /// Reports to the leaf the number of calls that wait elsewhere for credit here.
    pub(super) fn set_waiting(&mut self, now: Time, calls: u32, events: &mut impl FnMut(Event<'_, T>)) {
        // Silent leaves get the report, too: they read it when they continue.
        if let Some(socket) = self.socket_connection.as_mut().filter(|socket| self.is_validated && socket.is_ready()) {
            socket.writer().set_waiting_elsewhere(now, calls, events);
        }
    }

    /// Cancels a call. Returns whether the call had not ended; no event follows then.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, events: &mut impl FnMut(Event<'_, T>)) -> bool {
        self.socket_connection.as_mut().is_some_and(|socket| socket.writer().cancel(now, request, events).is_some())
    }

    /// Updates whether the leaf is silent: it owes something and has sent nothing for `silence`,
    /// not even a reply to a ping.
    ///
    /// The ping leaves after half of that time, because a single call may take long. The caller
    /// must have read all input before. Returns whether the state has changed or a ping waits to be
    /// sent.
    pub(super) fn check_silence(&mut self, now: Time, silence: Nanos) -> bool {
        let before = self.is_silent;
        self.is_silent = false;
        let Some(socket) = self.socket_connection.as_mut() else { return before };
        if !socket.is_ready() {
            // A thread that has not polled for a while finds the welcome late, and the leaf is not
            // at fault. So one request waits for it first.
            self.is_silent = self.awaited_generation == self.generation;
            return before != self.is_silent;
        }
        let is_wanted = self.was_denied || socket.connection().in_flight() > 0;
        self.was_denied &= socket.last_received() < self.owing_since;
        let half = silence / 2;
        if !is_wanted || now.since(socket.last_received().max(self.owing_since)) <= half {
            return before;
        }
        let pinged_at = socket.ping(now);
        self.is_silent = pinged_at < now && now.since(pinged_at) >= half;
        before != self.is_silent || pinged_at == now
    }

    /// The connection of a leaf that is connected, validated and not silent.
    fn up(&mut self) -> Option<&mut Box<SocketConnection<T>>> {
        self.socket_connection.as_mut().filter(|socket| self.is_validated && !self.is_silent && socket.is_ready())
    }

    /// Time since which the leaf owes a response and has sent nothing, if that is longer than
    /// `span`. The caller must have read all input before.
    pub(super) fn stalled_since(&mut self, now: Time, span: Nanos) -> Option<Time> {
        let owing_since = self.owing_since;
        let socket = self.up()?;
        let since = socket.last_received().max(owing_since);
        (socket.connection().in_flight() > 0 && now.since(since) > span).then_some(since)
    }

    /// Whether the leaf is up and has sent something after `since`. Pings it if it has not.
    pub(super) fn has_sent_after(&mut self, since: Time, now: Time) -> bool {
        let Some(socket) = self.up() else { return false };
        let has_sent = socket.last_received() > since;
        if !has_sent {
            socket.ping(now);
        }
        has_sent
    }

    /// Whether a call would leave at once.
    pub(super) fn would_send(&mut self, now: Time) -> bool {
        self.up().is_some_and(|socket| socket.connection().would_send(now))
    }

    /// Number of unanswered calls; the maximum if the leaf is not up.
    pub(super) fn in_flight(&mut self) -> u32 {
        self.up().map_or(u32::MAX, |socket| socket.connection().in_flight())
    }

    /// Number of unanswered calls and of unused reservations; 0 if the leaf is not up.
    pub(super) fn taken(&mut self) -> u32 {
        let reserved = self.reserved;
        self.up().map_or(0, |socket| socket.connection().in_flight() + reserved)
    }

    /// Window of the leaf; `None` if it does not limit the calls, or the leaf is not up.
    pub(super) fn window(&mut self) -> Option<u32> {
        let socket = self.up()?;
        Some(socket.connection().window()).filter(|allowed| *allowed < u32::MAX)
    }

    /// Number of calls that may be unanswered; 0 if the leaf is not up.
    pub(super) fn allowed(&mut self) -> u32 {
        self.up().map_or(0, |socket| socket.connection().window())
    }

    /// Runs due work: the next connection attempt, its time limit, a ping, expiring calls.
    pub(super) fn on_timer(
        &mut self,
        now: Time,
        registry: &Registry,
        random: &mut Random,
        events: &mut impl FnMut(Event<'_, T>),
    ) {
        let Some(socket) = &mut self.socket_connection else {
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
        if socket.on_timer(now, others).is_err() {
            self.disconnect(now, random, events);
        }
    }

    /// Time at which [`Link::on_timer`] has work next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.socket_connection.as_mut().map_or(self.attempts.next_at(), |socket| socket.next_timeout(now))
    }

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        self.needs_attempt = false;
        let address = *self.attempts.next(&self.settings.leaves[self.leaf].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let at = (registry, Token(self.leaf));
        match parts.and_then(|parts| {
            SocketConnection::open(address, parts, self.settings.limits(self.attempts.version()), at, now)
        }) {
            Ok(mut socket) => {
                (self.generation, self.reserved) = (self.generation.wrapping_add(1), 0);
                (self.is_silent, self.was_denied) = (false, false);
                self.is_validated = !self.settings.validation.is_enabled();
                if !self.is_validated {
                    // The call leaves with the registration. The welcome message follows before the
                    // leaf is validated.
                    let question = Request {
                        method: statistics::METHOD,
                        payload: &[],
                        priority: Priority::HIGHEST,
                        random: random.draw(),
                    };
                    socket.writer().submit(now, self.validation_token, &question, &mut |_| {});
                }
                self.socket_connection = Some(Box::new(socket));
            }
            Err(_) => self.schedule_reconnect(now, random),
        }
    }

    /// Records readiness of the socket, as the poll reports it.
    pub(super) fn on_readiness(&mut self, readiness: &Readiness) {
        if let Some(socket) = &mut self.socket_connection {
            socket.on_readiness(readiness);
        }
    }

    /// Whether [`Link::exchange`] has known work.
    pub(super) fn is_busy(&self) -> bool {
        self.socket_connection.as_ref().is_some_and(|socket| socket.is_busy())
    }

    /// Reads and writes bytes, up to a limit per call.
    pub(super) fn exchange(&mut self, clock: &Clock, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let Link {
            socket_connection: Some(socket),
            is_validated: is_accepted,
            validation_token: question,
            settings,
            leaf,
            ..
        } = self
        else {
            return;
        };
        let (question, mut verdict) = (*question, Ok(()));
        let moved = socket.exchange(clock, &mut |event| {
            if *event.token() != question {
                return events(event);
            }
            // Any other outcome ends with the connection.
            if let Event::Completed { payload, .. } = event {
                let info = Statistics::parse(payload).ok().map(|statistics| statistics.about);
                verdict = settings.validation.validate(*leaf, info.as_ref());
                *is_accepted = verdict.is_ok();
            }
        });
        if moved.is_err() || verdict.is_err() {
            self.disconnect(clock.now(), random, events);
        }
    }

    /// Closes the connection and ends all its calls.
    fn disconnect(&mut self, now: Time, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        let socket = self.socket_connection.take();
        self.needs_attempt |= socket.as_ref().is_some_and(|socket| socket.has_lasted(now, Nanos::ZERO));
        let question = self.validation_token;
        let events = &mut |event: Event<'_, T>| {
            if *event.token() != question {
                events(event);
            }
        };
        let refuses_version = socket.as_ref().is_some_and(|socket| socket.refuses_version());
        if let Some(socket) = socket {
            // A leaf that accepts connections and never sends its welcome does not reset the
            // backoff.
            if socket.has_lasted(now, self.attempts.stable_after()) {
                self.attempts.reset();
            }
            socket.close(now, events);
        }
        self.schedule_reconnect(now, random);
        if refuses_version {
            self.attempts.downgrade_version(now);
        }
    }

    fn schedule_reconnect(&mut self, now: Time, random: &mut Random) {
        self.attempts.record_end(now, self.settings.leaves[self.leaf].addresses.len(), random);
    }

    /// Ends the link with the tier, and sends a farewell if the leaf is connected.
    pub(super) fn leave(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        let question = self.validation_token;
        if let Some(socket) = self.socket_connection.take() {
            socket.leave(now, &mut |event: Event<'_, T>| {
                if *event.token() != question {
                    events(event);
                }
            });
        }
    }
}

/// Time since which a leaf that is called now owes a response: the earlier time if it still owes
/// one.
fn owes_since<T: Copy + PartialEq>(socket: &mut SocketConnection<T>, since: Time, now: Time) -> Time {
    if socket.connection().in_flight() == 0 { now } else { since }
}
