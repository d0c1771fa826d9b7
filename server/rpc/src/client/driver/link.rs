//! A connection to a replica, with its reconnections: calls, loss, and the wait for the next
//! attempt.
//!
//! The link reports outcomes of calls as [`CallEvent`]s; `dispatch` decides about them.

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
    /// Whether the connection has become ready since the last [`Link::take_connected`].
    has_connected: bool,
    /// Other servers are preferred until then: this one asked for a pause, rejected a call, or is
    /// about to stop.
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

    /// Whether the link accepts calls.
    pub(super) fn is_ready(&self) -> bool {
        self.socket_connection.as_ref().is_some_and(|socket| socket.is_ready())
    }

    pub(super) fn rank(&mut self, now: Time) -> LinkRank {
        let avoided = now < self.avoid_until;
        let Some(socket) = &mut self.socket_connection else {
            return LinkRank { is_avoided: avoided, held: true, waiting: u32::MAX, headroom: Reverse(0), in_flight: 0 };
        };
        let connection = socket.connection();
        let in_flight = connection.in_flight();
        LinkRank {
            is_avoided: avoided,
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
        call_events: &mut Vec<CallEvent>,
    ) -> Option<RequestId> {
        let mut events = CallEvent::recorder(self.index, call_events);
        let Some(socket) = &mut self.socket_connection else {
            events(Event::Disconnected { token: number, stage: RequestStage::Waiting });
            return None;
        };
        let request = Request { method: call.method, payload: &call.payload, priority: call.priority, random };
        match call.budget {
            None => socket.writer().submit(now, number, &request, &mut events),
            Some(budget) => {
                let remaining = Budget::of(budget.saturating_sub(now.since(call.made)));
                socket.writer().submit_within(now, number, &request, remaining, &mut events)
            }
        }
    }

    /// Cancels a call. Returns whether it had been sent.
    pub(super) fn cancel(
        &mut self,
        now: Time,
        request: RequestId,
        call_events: &mut Vec<CallEvent>,
    ) -> Option<RequestStage> {
        let socket = self.socket_connection.as_mut()?;
        let (_, at) = socket.writer().cancel(now, request, &mut CallEvent::recorder(self.index, call_events))?;
        Some(at)
    }

    /// Records a successful call: the client may reconnect to the server soon.
    pub(super) fn record_success(&mut self) {
        self.attempts.record_success();
    }

    // ---- time ----

    /// Runs due work: a connection attempt, its time limit, expiring requests, a ping.
    pub(super) fn on_timer(
        &mut self,
        now: Time,
        registry: &Registry,
        random: &mut Random,
        call_events: &mut Vec<CallEvent>,
    ) {
        let Some(socket) = &mut self.socket_connection else {
            if now >= self.attempts.next_at() {
                self.connect(now, registry, random);
            }
            return;
        };
        let result = socket.on_timer(now, &mut CallEvent::recorder(self.index, call_events));
        if let Err(failure) = result {
            self.disconnect(now, failure, random, call_events);
        }
    }

    /// Time at which [`Link::on_timer`] has work next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        self.socket_connection.as_mut().map_or(self.attempts.next_at(), |socket| socket.next_timeout(now))
    }

    // ---- the socket ----

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        let address = *self.attempts.next(&self.settings.replicas[self.replica].addresses);
        let parts = self.settings.parts().map_err(io::Error::other);
        let mut limits = self.settings.limits(self.attempts.version());
        let is_udp = self.settings.replicas[self.replica].transport == Transport::Udp;
        limits.datagrams = is_udp.then(|| (random.draw(), self.settings.datagram));
        let socket = self.socket(address, limits.datagrams, now);
        let at = (registry, Token(self.index));
        match parts.and_then(|parts| SocketConnection::with_socket(socket?, parts, limits, at, now)) {
            Ok(connection) => self.socket_connection = Some(Box::new(connection)),
            Err(error) => self.schedule_reconnect(now, ConnectionFailure::Lost(error.to_string()), random),
        }
    }

    /// Begins to connect, with TLS if configured.
    fn socket(&self, address: SocketAddr, datagrams: Option<(u64, DatagramSize)>, now: Time) -> io::Result<Socket> {
        #[cfg(feature = "tls")]
        if let Some((tls, name)) = &self.settings.replicas[self.replica].tls {
            return Socket::open_tls(address, tls.connect(name).map_err(io::Error::other)?);
        }
        Socket::open(address, datagrams, now)
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

    /// Whether the connection has become ready since the last call of this method.
    pub(super) fn take_connected(&mut self) -> bool {
        std::mem::take(&mut self.has_connected)
    }

    /// Reads and writes bytes, up to a limit per call.
    pub(super) fn exchange(&mut self, random: &mut Random, call_events: &mut Vec<CallEvent>) {
        let Some(socket) = &mut self.socket_connection else { return };
        let exchanged = socket.exchange(&self.clock, &mut CallEvent::recorder(self.index, call_events));
        match exchanged {
            Ok(is_new) => self.has_connected |= is_new,
            Err(failure) => {
                let now = self.clock.now();
                self.disconnect(now, failure, random, call_events);
            }
        }
    }

    /// Closes the connection and ends all its calls.
    fn disconnect(
        &mut self,
        now: Time,
        failure: ConnectionFailure,
        random: &mut Random,
        call_events: &mut Vec<CallEvent>,
    ) {
        let socket = self.socket_connection.take();
        let refuses_version = socket.as_ref().is_some_and(|socket| socket.refuses_version());
        if let Some(socket) = socket {
            if socket.has_lasted(now, self.attempts.stable_after()) {
                self.attempts.reset();
            }
            socket.close(now, &mut CallEvent::recorder(self.index, call_events));
        }
        self.schedule_reconnect(now, failure, random);
        if refuses_version {
            self.attempts.downgrade_version(now);
        }
    }

    fn schedule_reconnect(&mut self, now: Time, failure: ConnectionFailure, random: &mut Random) {
        (self.failure, self.failed_at) = (failure, now);
        self.avoid_until = Time::ZERO;
        self.attempts.record_end(now, self.settings.replicas[self.replica].addresses.len(), random);
    }

    /// Ends the link with the client, and sends a farewell if the server is connected.
    pub(super) fn leave(&mut self, now: Time, call_events: &mut Vec<CallEvent>) {
        if let Some(socket) = self.socket_connection.take() {
            socket.leave(now, &mut CallEvent::recorder(self.index, call_events));
        }
    }
}
