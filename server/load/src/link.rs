//! A connection with its socket: moves bytes and reports the connection's events.

use std::io::{self, ErrorKind};
use std::time::Instant;

use leeward_core::budget::Budget;
use leeward_core::client::ClientParts;
use leeward_core::units::{Nanos, Time};
use leeward_rpc::client::{Connection, DatagramCounts, Event, Phase, Request};
use leeward_rpc::wire::{self, Regime};

use crate::config::LoadConfig;
use crate::poller::Poller;
use crate::recorder::IssuedRequest;
use crate::socket::Socket;

/// The generator's clock: nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}

/// Reads of one socket per poll.
const READS_MAX: u32 = 4;

/// Change of a link's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    /// The server has welcomed the connection.
    Welcomed,
    /// The socket is gone.
    Lost,
}

/// A connection and its socket; the socket is `None` when it is lost.
pub(crate) struct Link {
    number: u32,
    socket: Option<Socket>,
    connection: Connection<IssuedRequest>,
    watches_writable: bool,
    /// The last [`LinkEvent`] that was reported.
    reported: Option<LinkEvent>,
    /// Time of the next timer event; `NEVER` if none is set.
    timer: Time,
    /// Counters of a lost socket.
    datagrams: DatagramCounts,
    /// Error of the lost socket, if it has more detail than the connection's error.
    socket_error: Option<String>,
}

impl Link {
    /// Connects and waits for the connection; sends nothing yet.
    pub(crate) fn open(
        number: u32,
        config: &LoadConfig,
        timeout: Nanos,
        parts: ClientParts,
        poller: &Poller,
        now: Time,
    ) -> io::Result<Self> {
        let to = (config.transport, config.address, config.datagram);
        let socket = Socket::open_tls(number, to, timeout, now, config.tls.as_ref())?;
        poller.add(&socket, number)?;
        let connection = Connection::new(parts, config.connection);
        Ok(Link {
            number,
            socket: Some(socket),
            connection,
            watches_writable: false,
            reported: None,
            timer: Time::NEVER,
            datagrams: DatagramCounts::default(),
            socket_error: None,
        })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.socket.is_none()
    }

    /// Change of the link since the last call.
    pub(crate) fn take_event(&mut self) -> Option<LinkEvent> {
        let state = match (self.is_lost(), self.connection.phase()) {
            (true, _) => Some(LinkEvent::Lost),
            (false, Phase::Ready) => Some(LinkEvent::Welcomed),
            _ => None,
        };
        if state == self.reported {
            return None;
        }
        self.reported = state;
        state
    }

    /// Whether windows bind, according to the server's welcome.
    pub(crate) fn gives_credits(&self) -> bool {
        self.connection.welcome().is_some_and(|welcome| welcome.regime == Regime::Credits)
    }

    /// Counters of retransmitted and duplicate datagrams.
    pub(crate) fn datagrams(&self) -> DatagramCounts {
        self.socket.as_ref().map_or(self.datagrams, Socket::counts)
    }

    /// Reason for which the connection is closed, for people.
    pub(crate) fn reason(&self) -> String {
        let known = || self.connection.error().map_or_else(String::new, ToString::to_string);
        self.socket_error.clone().unwrap_or_else(known)
    }

    pub(crate) fn submit(
        &mut self,
        now: Time,
        issued: IssuedRequest,
        request: &Request<'_>,
        budget: Budget,
        events: &mut impl FnMut(Time, Event<'_, IssuedRequest>),
    ) {
        let mut events = |event: Event<'_, IssuedRequest>| events(now, event);
        match budget.remaining() {
            Some(left) => self.connection.submit_within(now, issued, request, wire::Budget::of(left), &mut events),
            None => self.connection.submit(now, issued, request, &mut events),
        };
    }

    /// Reads available bytes, up to a limit, and writes the resulting output.
    pub(crate) fn ready(
        &mut self,
        clock: Clock,
        poller: &Poller,
        events: &mut impl FnMut(Time, Event<'_, IssuedRequest>),
    ) {
        for reads in 0.. {
            let Some(socket) = &mut self.socket else { return };
            if reads >= READS_MAX && !socket.holds_bytes() {
                break;
            }
            let spare = self.connection.spare();
            let capacity = spare.len();
            match socket.read(|| clock.now(), spare) {
                Ok(0) => return self.disconnect(clock.now(), events),
                Ok(count) => {
                    // The clock is read after the bytes, so no answer is dated before its arrival.
                    let now = clock.now();
                    if self.connection.on_received(now, count, &mut |event| events(now, event)).is_err() {
                        return self.disconnect(now, events);
                    }
                    if let Some(calls) = socket.congestion_window() {
                        self.connection.set_transport_limit(now, calls, &mut |event| events(now, event));
                    }
                    if !socket.may_have_more(count, capacity, self.connection.in_flight()) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // The text of a system error has less detail than the connection's error.
                    self.socket_error = error.get_ref().map(ToString::to_string);
                    if !socket.is_stream() && error.kind() == ErrorKind::ConnectionRefused {
                        self.socket_error = Some("no server listens there".into());
                    }
                    return self.disconnect(clock.now(), events);
                }
            }
        }
        self.flush(clock, poller, events);
    }

    /// Writes as much as the socket takes.
    pub(crate) fn flush(
        &mut self,
        clock: Clock,
        poller: &Poller,
        events: &mut impl FnMut(Time, Event<'_, IssuedRequest>),
    ) {
        loop {
            let now = clock.now();
            let Some(socket) = &mut self.socket else { return };
            let output = self.connection.output(now);
            if output.is_empty() {
                socket.flush();
                let wants_write = socket.wants_write();
                return self.watch_writable(now, wants_write, poller, events);
            }
            match socket.write(now, output) {
                Ok(0) => return self.disconnect(now, events),
                Ok(count) => self.connection.consume(now, count, &mut |event| events(now, event)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.flush();
                    if !socket.is_stream() {
                        // The next datagram from the server makes space; the socket is writable
                        // already.
                        return;
                    }
                    return self.watch_writable(now, true, poller, events);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.disconnect(now, events),
            }
        }
    }

    fn watch_writable(
        &mut self,
        now: Time,
        writable: bool,
        poller: &Poller,
        events: &mut impl FnMut(Time, Event<'_, IssuedRequest>),
    ) {
        let Some(socket) = &self.socket else { return };
        if self.watches_writable == writable {
            return;
        }
        self.watches_writable = writable;
        if poller.watch_writable(socket, self.number, writable).is_err() {
            self.disconnect(now, events);
        }
    }

    /// Drops the useless socket, which closes it and removes it from the poller.
    fn disconnect(&mut self, now: Time, events: &mut impl FnMut(Time, Event<'_, IssuedRequest>)) {
        if let Some(lost) = self.socket.as_ref().and_then(Socket::lost) {
            self.socket_error = Some(lost);
        }
        // The connection keeps the error.
        let _ = self.connection.on_eof(now, &mut |event| events(now, event));
        self.datagrams = self.datagrams();
        self.socket = None;
    }

    /// Handles the timer that was set for `at`; no effect if the timer was moved since.
    pub(crate) fn on_timer(&mut self, at: Time, now: Time, events: &mut impl FnMut(Time, Event<'_, IssuedRequest>)) {
        if self.timer == at {
            self.timer = Time::NEVER;
            if let Some(socket) = &mut self.socket
                && !socket.on_timer(now)
            {
                return self.disconnect(now, events);
            }
            self.connection.on_timer(now, &mut |event| events(now, event));
        }
    }

    /// New time of the timer; `None` if the timer stays. A timer that is too early stays, and has
    /// no effect.
    pub(crate) fn rearm(&mut self, now: Time) -> Option<Time> {
        let socket_timeout = self.socket.as_ref().map_or(Time::NEVER, Socket::next_timeout);
        let timeout = self.connection.next_timeout(now).unwrap_or(Time::NEVER).min(socket_timeout).max(now + Nanos(1));
        if timeout >= self.timer {
            return None;
        }
        self.timer = timeout;
        Some(timeout)
    }

    /// Closes the connection at the end of the run: deregisters if the server reads, and ends all
    /// requests. Not reported as a [`LinkEvent`].
    pub(crate) fn close(&mut self, now: Time, events: &mut impl FnMut(Time, Event<'_, IssuedRequest>)) {
        self.reported = Some(LinkEvent::Lost);
        self.connection.deregister(now, &mut |event| events(now, event));
        self.datagrams = self.datagrams();
        if let Some(mut socket) = self.socket.take() {
            // One attempt: if the server doesn't read, it sees the end of the stream.
            let _ = socket.write(now, self.connection.output(now));
        }
        self.connection.close(now, &mut |event| events(now, event));
    }
}
