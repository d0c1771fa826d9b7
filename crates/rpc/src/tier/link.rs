//! A tier's connection to one leaf, over its lives: the socket around a [`Connection`]. As the client's link, but for what it is for: the
//! bytes of a result go where the request is, without a copy of their own, and there is one leaf, not replicas to choose from.

use super::leaves::Settings;
use crate::client::driver::backoff::Backoff;
use crate::client::driver::link::{Trouble, is_connected};
use crate::client::driver::random::Random;
use crate::client::{Connection, ConnectionConfig, ConnectionError, Disconnected, Event, Phase, Request};
use crate::wire;
use leeward_control::budget::Budget;
use leeward_control::units::Time;
use leeward_runtime::Clock;
use mio::event::Event as Readiness;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// Reads of one socket before others get their turn.
const READS_MAX: u32 = 8;

/// A life of the connection.
struct Life<T> {
    socket: TcpStream,
    connection: Connection<T>,
    is_connected: bool,
    since: Time,
    /// The socket may have bytes, or its end.
    readable: bool,
    /// Nothing will come after what is there, so a short read is not the last.
    hung_up: bool,
    /// When something came last.
    heard: Time,
    /// When the leaf was asked for a sign of life.
    asked: Option<Time>,
}

pub(super) struct Link<T> {
    /// The leaf's place in the list, and the poll's token.
    leaf: usize,
    settings: Arc<Settings>,
    life: Option<Box<Life<T>>>,
    attempts: usize,
    retry_at: Time,
    backoff: Backoff,
    /// There may be bytes to write.
    dirty: bool,
}

impl<T> Link<T> {
    pub(super) fn new(leaf: usize, settings: &Arc<Settings>) -> Self {
        let backoff = Backoff::new(settings.backoff);
        Link {
            leaf,
            settings: Arc::clone(settings),
            life: None,
            attempts: 0,
            retry_at: Time::ZERO,
            backoff,
            dirty: false,
        }
    }

    /// Whether the leaf is there.
    pub(super) fn is_up(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.connection.phase() == Phase::Ready)
    }

    /// Submits a call. It leaves with the next [`Link::exchange`], waits, or ends here.
    pub(super) fn submit(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) {
        let Some(life) = &mut self.life else {
            return events(Event::Disconnected { token, at: Disconnected::Waiting });
        };
        self.dirty = true;
        match budget.remaining() {
            None => life.connection.submit(now, token, request, events),
            Some(left) => life.connection.submit_within(now, token, request, wire::Budget::of(left), events),
        };
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
            if now >= self.retry_at {
                self.connect(now, registry, random);
            }
            return;
        };
        if life.connection.phase() == Phase::Registering && now.since(life.since) >= self.settings.connect_timeout {
            return self.lose(now, random, events);
        }
        let (interval, patience) = self.settings.keep_alive;
        match life.asked {
            Some(asked) if life.heard >= asked => life.asked = None,
            Some(asked) if now.since(asked) >= patience => return self.lose(now, random, events),
            None if life.is_connected && now.since(life.heard) >= interval => {
                life.connection.ping(now);
                life.asked = Some(now);
                self.dirty = true;
            }
            _ => {}
        }
        if life.connection.next_timeout(now).is_some_and(|at| at <= now) {
            life.connection.on_timer(now, events);
            self.dirty = true;
        }
    }

    /// When [`Link::on_timer`] has something to do next.
    pub(super) fn next_timeout(&mut self, now: Time) -> Time {
        let Some(life) = &mut self.life else { return self.retry_at };
        if life.connection.phase() == Phase::Registering {
            return life.since + self.settings.connect_timeout;
        }
        let (interval, patience) = self.settings.keep_alive;
        let sign = life.asked.map_or(life.heard + interval, |asked| asked + patience);
        life.connection.next_timeout(now).unwrap_or(Time::NEVER).min(sign)
    }

    fn connect(&mut self, now: Time, registry: &Registry, random: &mut Random) {
        let addresses = &self.settings.leaves[self.leaf].addresses;
        let address = addresses[self.attempts % addresses.len()];
        self.attempts += 1;
        let opened = self.settings.parts().map_err(io::Error::other).and_then(|parts| {
            let mut socket = TcpStream::connect(address)?;
            // A small call must not wait for the acknowledgement of the one before it.
            socket.set_nodelay(true)?;
            registry.register(&mut socket, Token(self.leaf), Interest::READABLE | Interest::WRITABLE)?;
            Ok((socket, parts))
        });
        let Ok((socket, parts)) = opened else { return self.rest(now, random) };
        let config = ConnectionConfig { payload_max: self.settings.payload_max, ..ConnectionConfig::default() };
        self.life = Some(Box::new(Life {
            socket,
            connection: Connection::new(parts, config),
            is_connected: false,
            since: now,
            readable: false,
            hung_up: false,
            heard: now,
            asked: None,
        }));
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

    /// Moves bytes, as many as there are up to a bound.
    pub(super) fn exchange(&mut self, clock: &Clock, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        if self.is_busy() && self.try_exchange(clock, events).is_err() {
            self.lose(clock.now(), random, events);
        }
    }

    fn try_exchange(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<(), Trouble> {
        let Some(life) = &mut self.life else { return Ok(()) };
        if !life.is_connected {
            life.is_connected = is_connected(&life.socket)?;
            if !life.is_connected {
                (self.dirty, life.readable) = (false, false);
                return Ok(());
            }
            self.dirty = true;
        }
        if life.readable {
            self.dirty |= life.read(clock, events)?;
        }
        if self.dirty {
            self.dirty = false;
            life.write(clock, events)?;
        }
        Ok(())
    }

    /// The connection is over, and so is all that it had.
    fn lose(&mut self, now: Time, random: &mut Random, events: &mut impl FnMut(Event<'_, T>)) {
        if let Some(mut life) = self.life.take() {
            life.connection.close(now, events);
            // One that has held for long is no failure of the last attempt.
            if life.is_connected && now.since(life.since) > self.settings.backoff.1 {
                self.backoff.reset();
            }
        }
        self.rest(now, random);
    }

    fn rest(&mut self, now: Time, random: &mut Random) {
        self.dirty = false;
        // The other addresses of a name first.
        let tried_all = self.attempts.is_multiple_of(self.settings.leaves[self.leaf].addresses.len());
        self.retry_at = if tried_all { now + self.backoff.next(random) } else { now };
    }

    /// The tier ends: says good-bye if the leaf listens.
    pub(super) fn leave(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        let Some(mut life) = self.life.take() else { return };
        if life.connection.phase() == Phase::Ready {
            life.connection.deregister(now, events);
            // One attempt: if the leaf doesn't read, the end of the stream tells it, too.
            let _ = life.socket.write(life.connection.output(now));
        }
        life.connection.close(now, events);
    }
}

impl<T> Life<T> {
    /// Whether there may be something to say about what was read.
    fn read(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<bool, Trouble> {
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

    fn write(&mut self, clock: &Clock, events: &mut impl FnMut(Event<'_, T>)) -> Result<(), Trouble> {
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
