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

use super::call_event::CallEvent;
use super::choice::LinkRank;
use super::connect_attempts::ConnectAttempts;
use super::random::Random;
use super::socket::Socket;
use super::socket_connection::{ConnectionFailure, SocketConnection};
use super::table::PendingCall;
use crate::client::datagrams::Transport;
use crate::client::settings::Settings;
use crate::client::{Event, Request, RequestStage};
use crate::wire::{Budget, RequestId};

pub(super) struct Link {
    index: usize,
    pub(super) replica: usize,
    settings: Arc<Settings>,
    clock: Clock,
    max_outstanding: u32,
    socket_connection: Option<Box<SocketConnection<u64>>>,
    attempts: ConnectAttempts,
    pub(super) failure: ConnectionFailure,
    pub(super) failed_at: Time,
    /// The connection has become ready, and its owner has not been told yet.
    has_connected: bool,
    /// Another server is preferred until then: this one has asked for that, rejected a call, or is about to stop.
    pub(super) avoid_until: Time,
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
            socket_connection: None,
            attempts: ConnectAttempts::new(settings.backoff),
            failure: ConnectionFailure::Lost("not connected yet".into()),
            failed_at: Time::ZERO,
            has_connected: false,
            avoid_until: Time::ZERO,
        }
    }

    // ---- calls ----

    /// Whether calls may be submitted.
    pub(super) fn is_ready(&self) -> bool {
        self.socket_connection.as_ref().is_some_and(|life| life.is_ready())
    }

    pub(super) fn rank(&mut self, now: Time) -> LinkRank {
        let resting = now < self.avoid_until;
        let Some(life) = &mut self.socket_connection else {
            return LinkRank { is_avoided: resting, held: true, waiting: u32::MAX, headroom: Reverse(0), in_flight: 0 };
        };
        let connection = life.connection();
        let in_flight = connection.in_flight();
        LinkRank {
            is_avoided: resting,
            held: !connection.would_send(now),
            waiting: connection.waiting(),
            headroom: Reverse(connection.window().min(self.max_outstanding).saturating_sub(in_flight)),
            in_flight,
        }
    }

    pub(super) fn submit(
        &mut self,
        now: Time,
        number: u64,
        call: &PendingCall,
        random: u64,
        notes: &mut Vec<CallEvent>,
    ) -> Option<RequestId> {
        let mut events = CallEvent::recorder(self.index, notes);
        let Some(life) = &mut self.socket_connection else {
            events(Event::Disconnected { token: number, stage: RequestStage::Waiting });
            return None;
        };
        let request = Request { method: call.method, payload: &call.payload, priority: call.priority, random };
        match call.budget {
            None => life.writer().submit(now, number, &request, &mut events),
            Some(budget) => {
                let left = Budget::of(budget.saturating_sub(now.since(call.made)));
                life.writer().submit_within(now, number, &request, left, &mut events)
            }
        }
    }

    /// Cancels a call. Returns whether it had been sent.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, notes: &mut Vec<CallEvent>) -> Option<RequestStage> {
        let life = self.socket_connection.as_mut()?;
        let (_, at) = life.writer().cancel(now, request, &mut CallEvent::recorder(self.index, notes))?;
        Some(at)
    }

    /// A call has gone well: the server is worth coming back to soon.
    pub(super) fn record_success(&mut self) {
        self.attempts.record_success();
    }

    // ---- time ----

    /// Does the work that is due: an attempt to connect, a connection that takes too long, requests that expire, a sign
    /// of life.
    pub(super) fn on_timer(&mut self, now: Time, registry: &Registry, random: &mut Random, notes: &mut Vec<CallEvent>) {
        let Some(life) = &mut self.socket_connection else {
            if now >= self.attempts.next_at() {
                self.connect(now, registry, random);
            }
            return;
        };
        let done = life.on_timer(now, &mut CallEvent::recorder(self.index, notes));
        if let Err(trouble) = done {
            self.disconnect(now, trouble, random, notes);
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.socket_connection.as_mut().map_or(self.attempts.next_at(), |life| life.next_timeout(now))
    }

    // ---- the socket ----

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        let address = *self.attempts.next(&self.settings.replicas[self.replica].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let mut terms = self.settings.limits(self.attempts.version());
        let is_far = self.settings.replicas[self.replica].transport == Transport::Udp;
        terms.datagrams = is_far.then(|| (random.draw(), self.settings.datagram));
        let socket = self.socket(address, terms.datagrams, now);
        let at = (registry, Token(self.index));
        match parts.and_then(|parts| SocketConnection::with_socket(socket?, parts, terms, at, now)) {
            Ok(life) => self.socket_connection = Some(Box::new(life)),
            Err(error) => self.schedule_reconnect(now, ConnectionFailure::Lost(error.to_string()), random),
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
        if let Some(life) = &mut self.socket_connection {
            life.on_readiness(readiness);
        }
    }

    /// Whether [`Link::exchange`] has something to do, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.socket_connection.as_ref().is_some_and(|life| life.is_busy())
    }

    /// Whether it has become ready since this was asked last.
    pub(super) fn take_connected(&mut self) -> bool {
        std::mem::take(&mut self.has_connected)
    }

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, random: &mut Random, notes: &mut Vec<CallEvent>) {
        let Some(life) = &mut self.socket_connection else { return };
        let exchanged = life.exchange(&self.clock, &mut CallEvent::recorder(self.index, notes));
        match exchanged {
            Ok(is_new) => self.has_connected |= is_new,
            Err(trouble) => {
                let now = self.clock.now();
                self.disconnect(now, trouble, random, notes);
            }
        }
    }

    /// Ends whatever the connection still has.
    fn disconnect(&mut self, now: Time, trouble: ConnectionFailure, random: &mut Random, notes: &mut Vec<CallEvent>) {
        let life = self.socket_connection.take();
        let refuses_version = life.as_ref().is_some_and(|life| life.refuses_version());
        if let Some(life) = life {
            if life.has_lasted(now, self.attempts.stable_after()) {
                self.attempts.reset();
            }
            life.close(now, &mut CallEvent::recorder(self.index, notes));
        }
        self.schedule_reconnect(now, trouble, random);
        if refuses_version {
            self.attempts.downgrade_version(now);
        }
    }

    fn schedule_reconnect(&mut self, now: Time, trouble: ConnectionFailure, random: &mut Random) {
        (self.failure, self.failed_at) = (trouble, now);
        self.avoid_until = Time::ZERO;
        self.attempts.record_end(now, self.settings.replicas[self.replica].addresses.len(), random);
    }

    /// The client ends: says good-bye if the server listens.
    pub(super) fn leave(&mut self, now: Time, notes: &mut Vec<CallEvent>) {
        if let Some(life) = self.socket_connection.take() {
            life.leave(now, &mut CallEvent::recorder(self.index, notes));
        }
    }
}
