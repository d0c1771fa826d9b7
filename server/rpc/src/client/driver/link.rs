//! A connection to a replica, over its lives: calls, its loss, the wait for the next attempt. The fate of calls is reported as [`Note`]s;
//! deciding about them is `dispatch`'s.

use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use leeward_core::units::Time;
use leeward_datagram::DatagramSize;
use leeward_runtime::Clock;
use mio::event::Event as Readiness;
use mio::{Registry, Token};

use super::attempts::Attempts;
use super::choice::Standing;
use super::life::{Life, Trouble};
use super::note::Note;
use super::random::Random;
use super::socket::Socket;
use super::table::Pending;
use crate::client::datagrams::Transport;
use crate::client::settings::Settings;
use crate::client::{Disconnected, Event, Request};
use crate::wire::{Budget, RequestId};

pub(super) struct Link {
    index: usize,
    pub(super) replica: usize,
    settings: Arc<Settings>,
    clock: Clock,
    max_outstanding: u32,
    life: Option<Box<Life<u64>>>,
    attempts: Attempts,
    pub(super) trouble: Trouble,
    pub(super) troubled_at: Time,
    /// The connection has become ready, and its owner has not been told yet.
    is_new: bool,
    /// Another server is preferred until then: this one has asked for that, rejected a call, or is about to stop.
    pub(super) rests_until: Time,
}

impl Link {
    pub(super) fn new(
        index: usize,
        replica: usize,
        settings: &Arc<Settings>,
        max_outstanding: u32,
        clock: Clock,
    ) -> Self {
        Link {
            index,
            replica,
            settings: Arc::clone(settings),
            clock,
            max_outstanding,
            life: None,
            attempts: Attempts::new(settings.backoff),
            trouble: Trouble::Lost("not connected yet".into()),
            troubled_at: Time::ZERO,
            is_new: false,
            rests_until: Time::ZERO,
        }
    }

    // ---- calls ----

    /// Whether calls may be submitted.
    pub(super) fn is_ready(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_ready())
    }

    pub(super) fn standing(&mut self, now: Time) -> Standing {
        let resting = now < self.rests_until;
        let Some(life) = &mut self.life else {
            return Standing { resting, held: true, waiting: u32::MAX, spare: Reverse(0), in_flight: 0 };
        };
        let connection = life.connection();
        let in_flight = connection.in_flight();
        Standing {
            resting,
            held: !connection.would_send(now),
            waiting: connection.waiting(),
            spare: Reverse(connection.allowed().min(self.max_outstanding).saturating_sub(in_flight)),
            in_flight,
        }
    }

    pub(super) fn submit(
        &mut self,
        now: Time,
        number: u64,
        call: &Pending,
        random: u64,
        notes: &mut Vec<Note>,
    ) -> Option<RequestId> {
        let mut events = Note::writer(self.index, notes);
        let Some(life) = &mut self.life else {
            events(Event::Disconnected { token: number, at: Disconnected::Waiting });
            return None;
        };
        let request = Request { method: call.method, payload: &call.payload, priority: call.priority, random };
        match call.budget {
            None => life.say().submit(now, number, &request, &mut events),
            Some(budget) => {
                let left = Budget::of(budget.saturating_sub(now.since(call.made)));
                life.say().submit_within(now, number, &request, left, &mut events)
            }
        }
    }

    /// Cancels a call. Returns whether it had been sent.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, notes: &mut Vec<Note>) -> Option<Disconnected> {
        let life = self.life.as_mut()?;
        let (_, at) = life.say().cancel(now, request, &mut Note::writer(self.index, notes))?;
        Some(at)
    }

    /// A call has gone well: the server is worth coming back to soon.
    pub(super) fn praise(&mut self) {
        self.attempts.succeeded();
    }

    // ---- time ----

    /// Does the work that is due: an attempt to connect, a connection that takes too long, requests that expire, a sign
    /// of life.
    pub(super) fn on_timer(&mut self, now: Time, registry: &Registry, random: &mut Random, notes: &mut Vec<Note>) {
        let Some(life) = &mut self.life else {
            if now >= self.attempts.due() {
                self.connect(now, registry, random);
            }
            return;
        };
        let done = life.on_timer(now, &mut Note::writer(self.index, notes));
        if let Err(trouble) = done {
            self.lose(now, trouble, random, notes);
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.life.as_mut().map_or(self.attempts.due(), |life| life.next_timeout(now))
    }

    // ---- the socket ----

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        let address = *self.attempts.next(&self.settings.replicas[self.replica].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let mut terms = self.settings.terms(self.attempts.version());
        let is_far = self.settings.replicas[self.replica].transport == Transport::Udp;
        terms.datagrams = is_far.then(|| (random.draw(), self.settings.datagram));
        let socket = self.socket(address, terms.datagrams, now);
        let at = (registry, Token(self.index));
        match parts.and_then(|parts| Life::over(socket?, parts, terms, at, now)) {
            Ok(life) => self.life = Some(Box::new(life)),
            Err(error) => self.rest(now, Trouble::Lost(error.to_string()), random),
        }
    }

    /// Begins to connect: with TLS, if that is asked for.
    fn socket(&self, address: SocketAddr, datagrams: Option<(u64, DatagramSize)>, now: Time) -> io::Result<Socket> {
        #[cfg(feature = "tls")]
        if let Some((tls, name)) = &self.settings.replicas[self.replica].tls {
            return Socket::open_tls(address, tls.connect(name).map_err(io::Error::other)?);
        }
        Socket::open(address, datagrams, now)
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

    /// Whether it has become ready since this was asked last.
    pub(super) fn is_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, random: &mut Random, notes: &mut Vec<Note>) {
        let Some(life) = &mut self.life else { return };
        let exchanged = life.exchange(&self.clock, &mut Note::writer(self.index, notes));
        match exchanged {
            Ok(is_new) => self.is_new |= is_new,
            Err(trouble) => {
                let now = self.clock.now();
                self.lose(now, trouble, random, notes);
            }
        }
    }

    /// Ends whatever the connection still has.
    fn lose(&mut self, now: Time, trouble: Trouble, random: &mut Random, notes: &mut Vec<Note>) {
        let life = self.life.take();
        let refuses_version = life.as_ref().is_some_and(|life| life.refuses_version());
        if let Some(life) = life {
            if life.has_held(now, self.attempts.longest()) {
                self.attempts.held();
            }
            life.close(now, &mut Note::writer(self.index, notes));
        }
        self.rest(now, trouble, random);
        if refuses_version {
            self.attempts.version_was_refused(now);
        }
    }

    fn rest(&mut self, now: Time, trouble: Trouble, random: &mut Random) {
        (self.trouble, self.troubled_at) = (trouble, now);
        self.rests_until = Time::ZERO;
        self.attempts.ended(now, self.settings.replicas[self.replica].addresses.len(), random);
    }

    /// The client ends: says good-bye if the server listens.
    pub(super) fn leave(&mut self, now: Time, notes: &mut Vec<Note>) {
        if let Some(life) = self.life.take() {
            life.leave(now, &mut Note::writer(self.index, notes));
        }
    }
}
