//! A life of a connection: the socket around a [`Connection`], from connecting to its loss. The client's links and those of a tier share it.
//! Never here: which address is tried and when (`attempts`), and what becomes of calls (the owner's events).

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

/// Limits of a life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The longest result that is accepted.
    pub(crate) payload_max: PayloadLimit,
    /// Time until the welcome.
    pub(crate) connect_timeout: Nanos,
    /// Silence after which the server is asked for a sign of life, and how long it may take for that.
    pub(crate) keep_alive: (Nanos, Nanos),
    /// Version of the protocol.
    pub(crate) version: Version,
    /// A nonce for a session over datagrams, and how long they may be; `None` for a TCP connection.
    pub(crate) datagrams: Option<(u64, DatagramSize)>,
}

/// Why a connection was lost.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionFailure {
    /// The network, or the server's wish.
    Lost(String),
    /// The server broke the protocol.
    Protocol(String),
}

impl ConnectionFailure {
    pub(crate) fn message(&self) -> &str {
        match self {
            ConnectionFailure::Lost(words) | ConnectionFailure::Protocol(words) => words,
        }
    }
}

impl From<ConnectionError> for ConnectionFailure {
    fn from(error: ConnectionError) -> Self {
        let words = error.to_string();
        match error {
            ConnectionError::Server { .. } | ConnectionError::ClosedByServer | ConnectionError::LocallyClosed => {
                ConnectionFailure::Lost(words)
            }
            // A server that dies may do so in the middle of a frame.
            ConnectionError::Wire(WireError::Truncated { .. }) => ConnectionFailure::Lost(words),
            // Everything else is something that a server must not say.
            _ => ConnectionFailure::Protocol(words),
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The socket is connecting.
    Connecting,
    /// The server has not said its welcome.
    Greeting,
    /// Calls may go.
    Ready,
}

/// A life of a connection. `T` is whatever its owner knows a call by.
pub(crate) struct SocketConnection<T> {
    socket: Socket,
    connection: Connection<T>,
    limits: ConnectionLimits,
    stage: Stage,
    since: Time,
    /// The socket may have bytes, or its end.
    readable: bool,
    /// Nothing will come after what is there, so a short read is not the last.
    hung_up: bool,
    /// There may be bytes to write.
    dirty: bool,
    /// When something came last.
    last_received: Time,
    /// When the server was asked for a sign of life.
    ping_sent: Option<Time>,
}

impl<T> SocketConnection<T> {
    /// Begins to connect. Dropping the life closes the socket and takes it from the poll.
    pub(crate) fn open(
        address: SocketAddr,
        parts: ClientParts,
        terms: ConnectionLimits,
        at: (&Registry, Token),
        now: Time,
    ) -> io::Result<Self> {
        let socket = Socket::open(address, terms.datagrams, now)?;
        SocketConnection::with_socket(socket, parts, terms, at, now)
    }

    /// As [`Life::open`], over a socket that has begun to connect.
    pub(super) fn with_socket(
        mut socket: Socket,
        parts: ClientParts,
        terms: ConnectionLimits,
        (registry, token): (&Registry, Token),
        now: Time,
    ) -> io::Result<Self> {
        socket.register(registry, token, Interest::READABLE | Interest::WRITABLE)?;
        let ConnectionLimits { payload_max, version, .. } = terms;
        let config = ConnectionConfig { payload_max, version, ..ConnectionConfig::default() };
        Ok(SocketConnection {
            socket,
            connection: Connection::new(parts, config),
            limits: terms,
            stage: Stage::Connecting,
            since: now,
            readable: false,
            hung_up: false,
            dirty: false,
            last_received: now,
            ping_sent: None,
        })
    }

    /// The connection, to look at it. What it is given to say leaves with [`Life::say`].
    pub(crate) fn connection(&mut self) -> &mut Connection<T> {
        &mut self.connection
    }

    /// The connection, to give it something to say: it leaves with the next [`Life::exchange`].
    pub(crate) fn writer(&mut self) -> &mut Connection<T> {
        self.dirty = true;
        &mut self.connection
    }

    /// Asks for a sign of life, unless one is awaited. Since when one is.
    pub(crate) fn ping(&mut self, now: Time) -> Time {
        match self.ping_sent.filter(|asked| self.last_received < *asked) {
            Some(asked) => asked,
            None => {
                self.writer().ping(now);
                self.ping_sent = Some(now);
                now
            }
        }
    }

    /// When something came last.
    pub(crate) fn last_received(&self) -> Time {
        self.last_received
    }

    /// Whether the server has said its welcome, and nobody has ended the connection since.
    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready && self.connection.phase() == Phase::Ready
    }

    /// Whether it was ready and has lasted for longer than `span`: its end is no failure of the last attempt then.
    pub(crate) fn has_lasted(&self, now: Time, span: Nanos) -> bool {
        self.stage == Stage::Ready && now.since(self.since) > span
    }

    /// Whether it has ended because the server does not speak its version.
    pub(crate) fn refuses_version(&self) -> bool {
        self.connection.error().is_some_and(ConnectionError::refuses_version)
    }

    /// Does what is due: the limit of connecting, a sign of life, calls that expire. Those run before the welcome, too, for an owner that
    /// submits calls by then.
    pub(crate) fn on_timer(
        &mut self,
        now: Time,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), ConnectionFailure> {
        let ConnectionLimits { connect_timeout, keep_alive: (interval, patience), .. } = self.limits;
        match (self.stage, self.ping_sent) {
            (Stage::Connecting | Stage::Greeting, _) => {
                if now.since(self.since) >= connect_timeout {
                    return Err(ConnectionFailure::Lost("no welcome from the server in time".into()));
                }
            }
            (Stage::Ready, Some(asked)) if self.last_received >= asked => self.ping_sent = None,
            (Stage::Ready, Some(asked)) if now.since(asked) >= patience => {
                return Err(ConnectionFailure::Lost("the server gives no sign of life".into()));
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
        if let Socket::Datagrams(far) = &mut self.socket
            && far.next_timeout() <= now
        {
            far.on_timer(now);
            if let Some(lost) = far.lost() {
                return Err(ConnectionFailure::Lost(lost.to_string()));
            }
        }
        Ok(())
    }

    /// When [`Life::on_timer`] has something to do next.
    pub(crate) fn next_timeout(&mut self, now: Time) -> Time {
        let ConnectionLimits { connect_timeout, keep_alive: (interval, patience), .. } = self.limits;
        let sign = match (self.stage, self.ping_sent) {
            (Stage::Connecting | Stage::Greeting, _) => self.since + connect_timeout,
            (Stage::Ready, Some(asked)) => asked + patience,
            (Stage::Ready, None) => self.last_received + interval,
        };
        self.connection.next_timeout(now).unwrap_or(Time::NEVER).min(sign).min(self.socket.next_timeout())
    }

    /// The poll says something about the socket; or about its predecessor, which does no harm.
    pub(crate) fn on_readiness(&mut self, readiness: &Readiness) {
        self.hung_up |= readiness.is_read_closed() || readiness.is_error();
        self.readable |= readiness.is_readable() || self.hung_up;
        self.dirty |= readiness.is_writable();
    }

    /// Whether [`Life::exchange`] has something to do, as far as is known.
    pub(crate) fn is_busy(&self) -> bool {
        self.dirty || self.readable
    }

    /// Moves bytes, as many as there are up to a bound. Whether the connection has become ready by that.
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

    /// Whether there may be something to say about what was read.
    fn read(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<bool, ConnectionFailure> {
        let mut any = false;
        for _ in 0..READS_MAX {
            let spare = self.connection.spare();
            let room = spare.len();
            match self.socket.read(|| clock.now(), spare) {
                Ok(0) => {
                    let ended = self.connection.on_eof(clock.now(), events);
                    return Err(ended.err().unwrap_or(ConnectionError::ClosedByServer).into());
                }
                Ok(count) => {
                    // The clock is read after the bytes: an answer is never dated before it was here.
                    let now = clock.now();
                    (self.last_received, any) = (now, true);
                    self.connection.on_received(now, count, events)?;
                    if let Some(calls) = self.socket.transport_limit() {
                        self.connection.set_transport_limit(now, calls, events);
                    }
                    if count < room && !self.hung_up && self.socket.drains_on_short_read() {
                        self.readable = false;
                        return Ok(any);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(any);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionFailure::Lost(error.to_string())),
            }
        }
        Ok(any)
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
                Ok(0) => return Err(ConnectionFailure::Lost("the socket takes nothing any more".into())),
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

    /// Ends whatever the connection still has.
    pub(crate) fn close(mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        self.connection.close(now, events);
    }

    /// The owner ends: says good-bye if the server listens.
    pub(crate) fn leave(mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        if self.is_ready() {
            self.connection.deregister(now, events);
            // One attempt: if the server doesn't read, the end of the stream tells it, too.
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

    /// A server that accepts and says nothing: its connection is no success, however long it lasts, and it ends at its limit.
    #[test]
    fn a_mute_server_has_not_held() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut poll, clock) = (Poll::new().unwrap(), Clock::start());
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_millis(1));
        let parts = (none::ALGORITHM.build_client)(&Params::default(), &environment).unwrap();
        let opened = clock.now();
        let at = (poll.registry(), Token(0));
        let mut life = SocketConnection::<u64>::open(listener.local_addr().unwrap(), parts, TERMS, at, opened).unwrap();
        let _accepted = listener.accept().unwrap();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
        events.iter().for_each(|event| life.on_readiness(event));
        assert!(!life.exchange(&clock, &mut |_| ()).unwrap());
        assert_eq!(life.stage, Stage::Greeting, "connected, and registered");
        assert!(!life.has_lasted(opened + Nanos::from_secs(60), Nanos::from_secs(2)));
        assert_eq!(life.next_timeout(clock.now()), opened + TERMS.connect_timeout);
        assert!(life.on_timer(opened + Nanos::from_secs(2), &mut |_| ()).is_ok());
        assert!(life.on_timer(opened + Nanos::from_secs(3), &mut |_| ()).is_err());
    }
}
