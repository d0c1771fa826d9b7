//! One socket connection: the socket around a [`Connection`], from connecting to its loss. The
//! client's links and a tier's links share it.
//!
//! Does not contain the schedule of attempts (`connect_attempts`), or the outcomes of calls (the
//! owner's events).

use super::socket::Socket;
use crate::client::{Connection, ConnectionConfig, ConnectionError, Event, Phase};
use crate::wire::{PayloadLimit, Version, WireError};
use leeward_core::client::ClientParts;
use leeward_core::units::{Nanos, Time};
use leeward_datagram::DatagramSize;
use leeward_runtime::Clock;
use mio::event::Event as Readiness;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Reads of one socket before others get their turn.
const READS_MAX: u32 = 8;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Longest accepted result.
    pub(crate) payload_max: PayloadLimit,
    /// Time until the welcome.
    pub(crate) connect_timeout: Nanos,
    /// Silence before a ping, and time limit for the reply.
    pub(crate) keep_alive: (Nanos, Nanos),
    /// Version of the protocol.
    pub(crate) version: Version,
    /// Nonce of a session over datagrams, and their maximum size; `None` for a TCP connection.
    pub(crate) datagrams: Option<(u64, DatagramSize)>,
}

/// Reason for the loss of a connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionFailure {
    /// The network failed, or the server closed the connection.
    Lost(String),
    /// The server violated the protocol.
    Protocol(String),
}

impl ConnectionFailure {
    pub(crate) fn message(&self) -> &str {
        match self {
            ConnectionFailure::Lost(message) | ConnectionFailure::Protocol(message) => message,
        }
    }
}

impl From<ConnectionError> for ConnectionFailure {
    fn from(error: ConnectionError) -> Self {
        let message = error.to_string();
        match error {
            ConnectionError::Server { .. } | ConnectionError::ClosedByServer | ConnectionError::LocallyClosed => {
                ConnectionFailure::Lost(message)
            }
            // A server that dies may do so in the middle of a frame.
            ConnectionError::Wire(WireError::Truncated { .. }) => ConnectionFailure::Lost(message),
            // All other errors are messages that a server must not send.
            _ => ConnectionFailure::Protocol(message),
        }
    }
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The socket is connecting.
    Connecting,
    /// The server has not sent its welcome.
    Greeting,
    /// Calls may leave.
    Ready,
}

/// One socket connection. `T` is the owner's token of a call.
pub(crate) struct SocketConnection<T> {
    socket: Socket,
    connection: Connection<T>,
    limits: ConnectionLimits,
    stage: Stage,
    since: Time,
    /// The socket may have bytes, or its end.
    readable: bool,
    /// The peer has closed: no more bytes will arrive, so a short read is not the last.
    hung_up: bool,
    /// There may be bytes to write.
    dirty: bool,
    /// Time of the last input.
    last_received: Time,
    /// Time of the last ping.
    ping_sent: Option<Time>,
}

impl<T> SocketConnection<T> {
    /// Begins to connect. Dropping the connection closes the socket and deregisters it.
    pub(crate) fn open(
        address: SocketAddr,
        parts: ClientParts,
        connection_limits: ConnectionLimits,
        registration: (&Registry, Token),
        now: Time,
    ) -> io::Result<Self> {
        let socket = Socket::open(address, connection_limits.datagrams, now)?;
        SocketConnection::with_socket(socket, parts, connection_limits, registration, now)
    }

    /// Like [`SocketConnection::open`], over a socket that has begun to connect.
    pub(super) fn with_socket(
        mut socket: Socket,
        parts: ClientParts,
        connection_limits: ConnectionLimits,
        (registry, token): (&Registry, Token),
        now: Time,
    ) -> io::Result<Self> {
        socket.register(registry, token, Interest::READABLE | Interest::WRITABLE)?;
        let ConnectionLimits { payload_max, version, .. } = connection_limits;
        let config = ConnectionConfig { payload_max, version, ..ConnectionConfig::default() };
        Ok(SocketConnection {
            socket,
            connection: Connection::new(parts, config),
            limits: connection_limits,
            stage: Stage::Connecting,
            since: now,
            readable: false,
            hung_up: false,
            dirty: false,
            last_received: now,
            ping_sent: None,
        })
    }

    /// The connection, for reading. New messages need [`SocketConnection::writer`].
    pub(crate) fn connection(&mut self) -> &mut Connection<T> {
        &mut self.connection
    }

    /// The connection, for writing: messages leave with the next [`SocketConnection::exchange`].
    pub(crate) fn writer(&mut self) -> &mut Connection<T> {
        self.dirty = true;
        &mut self.connection
    }

    /// Pings the server, unless a reply is awaited. Returns the time of the awaited ping.
    pub(crate) fn ping(&mut self, now: Time) -> Time {
        match self.ping_sent.filter(|sent_at| self.last_received < *sent_at) {
            Some(sent_at) => sent_at,
            None => {
                self.writer().ping(now);
                self.ping_sent = Some(now);
                now
            }
        }
    }

    /// Time of the last input.
    pub(crate) fn last_received(&self) -> Time {
        self.last_received
    }

    /// Whether the server has sent its welcome, and neither side has closed the connection since.
    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready && self.connection.phase() == Phase::Ready
    }

    /// Whether the connection was ready and has lasted longer than `span`. Then its end is no
    /// failure of the last attempt.
    pub(crate) fn has_lasted(&self, now: Time, span: Nanos) -> bool {
        self.stage == Stage::Ready && now.since(self.since) > span
    }

    /// Whether it has ended because the server does not speak its version.
    pub(crate) fn refuses_version(&self) -> bool {
        self.connection.error().is_some_and(ConnectionError::refuses_version)
    }

    /// Runs due work: the time limit of connecting, a ping, expiring calls.
    ///
    /// Calls expire before the welcome, too, for an owner that submits calls by then.
    pub(crate) fn on_timer(
        &mut self,
        now: Time,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), ConnectionFailure> {
        let ConnectionLimits { connect_timeout, keep_alive: (interval, reply_limit), .. } = self.limits;
        match (self.stage, self.ping_sent) {
            (Stage::Connecting | Stage::Greeting, _) => {
                if now.since(self.since) >= connect_timeout {
                    return Err(ConnectionFailure::Lost("no welcome from the server in time".into()));
                }
            }
            (Stage::Ready, Some(sent_at)) if self.last_received >= sent_at => self.ping_sent = None,
            (Stage::Ready, Some(sent_at)) if now.since(sent_at) >= reply_limit => {
                return Err(ConnectionFailure::Lost("the server does not respond to pings".into()));
            }
            (Stage::Ready, None) if now.since(self.last_received) >= interval => {
                self.writer().ping(now);
                self.ping_sent = Some(now);
            }
            (Stage::Ready, _) => {}
        }
        if self.connection.next_timeout(now).is_some_and(|at| at <= now) {
            self.writer().on_timer(now, events);
        }
        if let Socket::Datagrams(stream) = &mut self.socket
            && stream.next_timeout() <= now
        {
            stream.on_timer(now);
            if let Some(lost) = stream.lost() {
                return Err(ConnectionFailure::Lost(lost.to_string()));
            }
        }
        Ok(())
    }

    /// Time at which [`SocketConnection::on_timer`] has work next.
    pub(crate) fn next_timeout(&mut self, now: Time) -> Time {
        let ConnectionLimits { connect_timeout, keep_alive: (interval, reply_limit), .. } = self.limits;
        let keep_alive_at = match (self.stage, self.ping_sent) {
            (Stage::Connecting | Stage::Greeting, _) => self.since + connect_timeout,
            (Stage::Ready, Some(sent_at)) => sent_at + reply_limit,
            (Stage::Ready, None) => self.last_received + interval,
        };
        self.connection.next_timeout(now).unwrap_or(Time::NEVER).min(keep_alive_at).min(self.socket.next_timeout())
    }

    /// Records readiness of the socket. Readiness of its predecessor is harmless.
    pub(crate) fn on_readiness(&mut self, readiness: &Readiness) {
        self.hung_up |= readiness.is_read_closed() || readiness.is_error();
        self.readable |= readiness.is_readable() || self.hung_up;
        self.dirty |= readiness.is_writable();
    }

    /// Whether [`SocketConnection::exchange`] has known work.
    pub(crate) fn is_busy(&self) -> bool {
        self.dirty || self.readable
    }

    /// Reads and writes bytes, up to a limit per call. Returns whether the connection has become
    /// ready.
    pub(crate) fn exchange(
        &mut self,
        clock: &Clock,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<bool, ConnectionFailure> {
        if !self.is_busy() {
            return Ok(false);
        }
        if self.stage == Stage::Connecting {
            if !self.socket.is_connected()? {
                (self.dirty, self.readable) = (false, false);
                return Ok(false);
            }
            self.stage = Stage::Greeting;
            self.dirty = true;
        }
        if self.readable {
            self.dirty |= self.read(clock, events)?;
        }
        if self.dirty {
            self.dirty = false;
            self.write(clock, events)?;
        }
        let is_new = self.stage == Stage::Greeting && self.connection.phase() == Phase::Ready;
        if is_new {
            self.stage = Stage::Ready;
        }
        Ok(is_new)
    }

    /// Reads input. Returns whether there may be output about it.
    fn read(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<bool, ConnectionFailure> {
        let mut has_input = false;
        for _ in 0..READS_MAX {
            let spare = self.connection.spare();
            let capacity = spare.len();
            match self.socket.read(|| clock.now(), spare) {
                Ok(0) => {
                    let ended = self.connection.on_eof(clock.now(), events);
                    return Err(ended.err().unwrap_or(ConnectionError::ClosedByServer).into());
                }
                Ok(count) => {
                    // Read the clock after the bytes: no response is dated before its arrival.
                    let now = clock.now();
                    (self.last_received, has_input) = (now, true);
                    self.connection.on_received(now, count, events)?;
                    if let Some(calls) = self.socket.transport_limit() {
                        self.connection.set_transport_limit(now, calls, events);
                    }
                    if count < capacity && !self.hung_up && self.socket.drains_on_short_read() {
                        self.readable = false;
                        return Ok(has_input);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(has_input);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionFailure::Lost(error.to_string())),
            }
        }
        Ok(has_input)
    }

    fn write(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<(), ConnectionFailure> {
        loop {
            let now = clock.now();
            let output = self.connection.output(now);
            if output.is_empty() {
                self.socket.finish();
                return Ok(());
            }
            match self.socket.write(now, output) {
                Ok(0) => return Err(ConnectionFailure::Lost("the socket accepts no more data".into())),
                Ok(count) => self.connection.consume(now, count, events),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.finish();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionFailure::Lost(error.to_string())),
            }
        }
    }

    /// Closes the connection and ends all its calls.
    pub(crate) fn close(mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        self.connection.close(now, events);
    }

    /// Ends the connection with its owner, and sends a farewell if the server is connected.
    pub(crate) fn leave(mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        if self.is_ready() {
            self.connection.deregister(now, events);
            // One attempt: if the server does not read, the end of the stream shows the same.
            let _ = self.socket.write(now, self.connection.output(now));
        }
        self.close(now, events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::none;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use mio::{Events, Poll};
    use std::net::TcpListener;
    use std::time::Duration;

    const TERMS: ConnectionLimits = ConnectionLimits {
        payload_max: PayloadLimit::DEFAULT,
        connect_timeout: Nanos::from_secs(3),
        keep_alive: (Nanos::from_secs(15), Nanos::from_secs(10)),
        version: Version::NEWEST,
        datagrams: None,
    };

    /// A server that accepts and sends nothing: its connection is no success, however long it
    /// lasts, and ends at its limit.
    #[test]
    fn a_connection_to_a_mute_server_is_no_success() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut poll, clock) = (Poll::new().unwrap(), Clock::start());
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_millis(1));
        let parts = (none::ALGORITHM.build_client)(&Params::default(), &environment).unwrap();
        let opened = clock.now();
        let registration = (poll.registry(), Token(0));
        let mut socket_connection =
            SocketConnection::<u64>::open(listener.local_addr().unwrap(), parts, TERMS, registration, opened).unwrap();
        let _accepted = listener.accept().unwrap();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
        events.iter().for_each(|event| socket_connection.on_readiness(event));
        assert!(!socket_connection.exchange(&clock, &mut |_| ()).unwrap());
        assert_eq!(socket_connection.stage, Stage::Greeting, "connected, and registered");
        assert!(!socket_connection.has_lasted(opened + Nanos::from_secs(60), Nanos::from_secs(2)));
        assert_eq!(socket_connection.next_timeout(clock.now()), opened + TERMS.connect_timeout);
        assert!(socket_connection.on_timer(opened + Nanos::from_secs(2), &mut |_| ()).is_ok());
        assert!(socket_connection.on_timer(opened + Nanos::from_secs(3), &mut |_| ()).is_err());
    }
}
