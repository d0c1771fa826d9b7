//! Socket of a connection, over its lives: connecting, the bytes of a [`Connection`], its loss, the wait for the next
//! attempt. The fate of calls is reported as [`Note`]s; deciding about them is `dispatch`'s.

use std::cmp::Reverse;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use leeward_control::units::Time;
use leeward_runtime::Clock;
use mio::event::Event as Readiness;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::backoff::Backoff;
use super::choice::Standing;
use super::note::Note;
use super::random::Random;
use super::table::Pending;
use crate::client::settings::Settings;
use crate::client::{Connection, ConnectionConfig, ConnectionError, Disconnected, Event, Phase, Request};
use crate::wire::{Budget, RequestId, WireError};

/// Reads of one socket before others get their turn.
const READS_MAX: u32 = 8;

/// Why a connection was lost.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The network, or the server's wish.
    Lost(String),
    /// The server broke the protocol.
    Protocol(String),
}

impl Trouble {
    pub(crate) fn words(&self) -> &str {
        match self {
            Trouble::Lost(words) | Trouble::Protocol(words) => words,
        }
    }
}

impl From<ConnectionError> for Trouble {
    fn from(error: ConnectionError) -> Self {
        let words = error.to_string();
        match error {
            ConnectionError::Server { .. } | ConnectionError::Ended | ConnectionError::Closed => Trouble::Lost(words),
            // A server that dies may do so in the middle of a frame.
            ConnectionError::Wire(WireError::Truncated { .. }) => Trouble::Lost(words),
            // Everything else is something that a server must not say.
            _ => Trouble::Protocol(words),
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

/// A life of a connection.
struct Life {
    socket: TcpStream,
    connection: Connection<u64>,
    stage: Stage,
    since: Time,
    /// The socket may have bytes, or its end.
    readable: bool,
    /// Nothing will come after what is there, so a short read is not the last.
    hung_up: bool,
    /// When something came last.
    heard: Time,
    /// When the server was asked for a sign of life.
    asked: Option<Time>,
}

pub(super) struct Link {
    index: usize,
    pub(super) replica: usize,
    settings: Arc<Settings>,
    clock: Clock,
    max_outstanding: u32,
    life: Option<Box<Life>>,
    attempts: usize,
    retry_at: Time,
    backoff: Backoff,
    /// There may be bytes to write.
    dirty: bool,
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
            attempts: 0,
            retry_at: Time::ZERO,
            backoff: Backoff::new(settings.backoff),
            dirty: false,
            trouble: Trouble::Lost("not connected yet".into()),
            troubled_at: Time::ZERO,
            is_new: false,
            rests_until: Time::ZERO,
        }
    }

    // ---- calls ----

    /// Whether calls may be submitted.
    pub(super) fn is_ready(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.stage == Stage::Ready && life.connection.phase() == Phase::Ready)
    }

    pub(super) fn standing(&mut self, now: Time) -> Standing {
        let resting = now < self.rests_until;
        let Some(life) = &mut self.life else {
            return Standing { resting, held: true, waiting: u32::MAX, spare: Reverse(0), in_flight: 0 };
        };
        let connection = &mut life.connection;
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
        self.dirty = true;
        let request = Request { method: call.method, payload: &call.payload, priority: call.priority, random };
        match call.budget {
            None => life.connection.submit(now, number, &request, &mut events),
            Some(budget) => {
                let left = Budget::of(budget.saturating_sub(now.since(call.made)));
                life.connection.submit_within(now, number, &request, left, &mut events)
            }
        }
    }

    /// Cancels a call. Returns whether it had been sent.
    pub(super) fn cancel(&mut self, now: Time, request: RequestId, notes: &mut Vec<Note>) -> Option<Disconnected> {
        let life = self.life.as_mut()?;
        self.dirty = true;
        let (_, at) = life.connection.cancel(now, request, &mut Note::writer(self.index, notes))?;
        Some(at)
    }

    /// A call has gone well: the server is worth coming back to soon.
    pub(super) fn praise(&mut self) {
        self.backoff.reset();
    }

    // ---- time ----

    /// Does the work that is due: an attempt to connect, a connection that takes too long, requests that expire, a sign
    /// of life.
    pub(super) fn on_timer(&mut self, now: Time, registry: &Registry, random: &mut Random, notes: &mut Vec<Note>) {
        let Some(life) = &mut self.life else {
            if now >= self.retry_at {
                self.connect(now, registry, random);
            }
            return;
        };
        if life.stage != Stage::Ready {
            if now.since(life.since) >= self.settings.connect_timeout {
                self.lose(now, "no welcome from the server in time", random, notes);
            }
            return;
        }
        let (interval, patience) = self.settings.keep_alive;
        match life.asked {
            Some(asked) if life.heard >= asked => life.asked = None,
            Some(asked) if now.since(asked) >= patience => {
                return self.lose(now, "the server gives no sign of life", random, notes);
            }
            None if now.since(life.heard) >= interval => {
                life.connection.ping(now);
                life.asked = Some(now);
                self.dirty = true;
            }
            _ => {}
        }
        if life.connection.next_timeout(now).is_some_and(|at| at <= now) {
            life.connection.on_timer(now, &mut Note::writer(self.index, notes));
            self.dirty = true;
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        let Some(life) = &mut self.life else { return self.retry_at };
        if life.stage != Stage::Ready {
            return life.since + self.settings.connect_timeout;
        }
        let (interval, patience) = self.settings.keep_alive;
        let sign = life.asked.map_or(life.heard + interval, |asked| asked + patience);
        life.connection.next_timeout(now).unwrap_or(Time::NEVER).min(sign)
    }

    // ---- the socket ----

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        let addresses = &self.settings.replicas[self.replica].addresses;
        let address = addresses[self.attempts % addresses.len()];
        self.attempts += 1;
        let parts = self.settings.parts().map_err(io::Error::other);
        let opened = parts.and_then(|parts| {
            let mut socket = TcpStream::connect(address)?;
            // A small call must not wait for the acknowledgement of the one before it.
            socket.set_nodelay(true)?;
            registry.register(&mut socket, Token(self.index), Interest::READABLE | Interest::WRITABLE)?;
            Ok((socket, parts))
        });
        match opened {
            Ok((socket, parts)) => {
                let config = ConnectionConfig { payload_max: self.settings.payload_max, ..ConnectionConfig::default() };
                let connection = Connection::new(parts, config);
                let stage = Stage::Connecting;
                let (readable, hung_up, heard, asked) = (false, false, now, None);
                let life = Life { socket, connection, stage, since: now, readable, hung_up, heard, asked };
                self.life = Some(Box::new(life));
            }
            Err(error) => self.rest(now, Trouble::Lost(error.to_string()), random),
        }
    }

    /// The poll says something about the socket; or about its predecessor, which does no harm.
    pub(super) fn on_readiness(&mut self, readiness: &Readiness) {
        let Some(life) = &mut self.life else { return };
        life.hung_up |= readiness.is_read_closed() || readiness.is_error();
        life.readable |= readiness.is_readable() || life.hung_up;
        self.dirty |= readiness.is_writable();
    }

    /// Whether [`Link::exchange`] has something to do, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.life.as_ref().is_some_and(|life| self.dirty || life.readable)
    }

    /// Whether it has become ready since this was asked last.
    pub(super) fn is_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, random: &mut Random, notes: &mut Vec<Note>) {
        if let Err(trouble) = self.try_exchange(notes) {
            let now = self.clock.now();
            self.end_life(now, notes);
            self.rest(now, trouble, random);
        }
    }

    fn try_exchange(&mut self, notes: &mut Vec<Note>) -> Result<(), Trouble> {
        let Some(life) = &mut self.life else { return Ok(()) };
        if life.stage == Stage::Connecting {
            if (self.dirty || life.readable) && is_connected(&life.socket)? {
                life.stage = Stage::Greeting;
                self.dirty = true;
            } else {
                (self.dirty, life.readable) = (false, false);
                return Ok(());
            }
        }
        let mut events = Note::writer(self.index, notes);
        if life.readable {
            self.dirty |= life.read(&self.clock, &mut events)?;
        }
        if self.dirty {
            self.dirty = false;
            life.write(&self.clock, &mut events)?;
        }
        if life.stage == Stage::Greeting && life.connection.phase() == Phase::Ready {
            life.stage = Stage::Ready;
            self.is_new = true;
        }
        Ok(())
    }

    fn lose(&mut self, now: Time, words: &str, random: &mut Random, notes: &mut Vec<Note>) {
        self.end_life(now, notes);
        self.rest(now, Trouble::Lost(words.into()), random);
    }

    /// Ends whatever the connection still has. Dropping the socket closes it and takes it from the poll.
    fn end_life(&mut self, now: Time, notes: &mut Vec<Note>) {
        let Some(mut life) = self.life.take() else { return };
        life.connection.close(now, &mut Note::writer(self.index, notes));
        // One that has held for long is no failure of the last attempt.
        if life.stage == Stage::Ready && now.since(life.since) > self.settings.backoff.1 {
            self.backoff.reset();
        }
    }

    fn rest(&mut self, now: Time, trouble: Trouble, random: &mut Random) {
        (self.trouble, self.troubled_at) = (trouble, now);
        self.dirty = false;
        self.rests_until = Time::ZERO;
        // The other addresses of a name first.
        let tried_all = self.attempts.is_multiple_of(self.settings.replicas[self.replica].addresses.len());
        self.retry_at = if tried_all { now + self.backoff.next(random) } else { now };
    }

    /// The client ends: says good-bye if the server listens.
    pub(super) fn leave(&mut self, now: Time, notes: &mut Vec<Note>) {
        let Some(mut life) = self.life.take() else { return };
        let mut events = Note::writer(self.index, notes);
        if life.stage == Stage::Ready {
            life.connection.deregister(now, &mut events);
            // One attempt: if the server doesn't read, the end of the stream tells it, too.
            let _ = life.socket.write(life.connection.output(now));
        }
        life.connection.close(now, &mut events);
    }
}

impl Life {
    /// Whether there may be something to say about what was read.
    fn read(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, u64>)) -> Result<bool, Trouble> {
        let mut any = false;
        for _ in 0..READS_MAX {
            let spare = self.connection.spare();
            let room = spare.len();
            match self.socket.read(spare) {
                Ok(0) => {
                    let ended = self.connection.ended(clock.now(), events);
                    return Err(ended.err().unwrap_or(ConnectionError::Ended).into());
                }
                Ok(count) => {
                    // The clock is read after the bytes: an answer is never dated before it was here.
                    let now = clock.now();
                    (self.heard, any) = (now, true);
                    self.connection.received(now, count, events)?;
                    if count < room && !self.hung_up {
                        self.readable = false;
                        return Ok(any);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(any);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Lost(error.to_string())),
            }
        }
        Ok(any)
    }

    fn write(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, u64>)) -> Result<(), Trouble> {
        loop {
            let now = clock.now();
            let output = self.connection.output(now);
            if output.is_empty() {
                return Ok(());
            }
            match self.socket.write(output) {
                Ok(0) => return Err(Trouble::Lost("the socket takes nothing any more".into())),
                Ok(count) => self.connection.consumed(now, count, events),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Lost(error.to_string())),
            }
        }
    }
}

/// Whether a socket that was connecting is connected.
pub(crate) fn is_connected(socket: &TcpStream) -> Result<bool, Trouble> {
    let lost = |error: io::Error| Trouble::Lost(error.to_string());
    if let Some(error) = socket.take_error().map_err(lost)? {
        return Err(lost(error));
    }
    match socket.peer_addr() {
        // On loopback a port without a listener may be given to the very socket that connects to it, which then talks to
        // itself and keeps the server from coming back.
        Ok(peer) if socket.local_addr().is_ok_and(|local| local == peer) => Err(Trouble::Lost("nobody listens".into())),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(lost(error)),
    }
}
