//! A connection of the admin port: reads a head, writes an answer or events, ends. Never waits. Never here: which answer.

use crate::request;
use crate::response::Response;
use crate::routes::{self, Answer, State};
use crate::stream::Stream;
#[cfg(feature = "tls")]
use crate::tls::{Admission, Encrypted, Lock};
use leeward_http1::LONGEST;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a head may take to come, an answer to go, and a listener to take nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client that has sent more than was read has to hear the answer: closing at once would reset the connection.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that may wait for a listener. Whoever is further behind is let go.
const BEHIND: usize = 1 << 20;
/// Bytes that are thrown away from a client that goes on sending.
const DISCARDED: usize = 1 << 20;

/// Stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its head is coming.
    Reading,
    /// Its answer is going.
    Writing,
    /// A listener to events.
    Listening,
    /// A peer that has its answer, and has sent more than was read.
    Lingering,
    Over,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) stage: Stage,
    head: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// When the stage ends at the latest.
    pub(crate) due: Instant,
    discarded: usize,
    /// Whether more than the head may have come.
    is_rude: bool,
    /// Whether it has just begun to listen, and has heard nothing of the past yet.
    pub(crate) is_new_listener: bool,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, now: Instant) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let _ = socket.set_nodelay(true);
        Ok(Connection {
            stream: Stream::Plain(socket),
            stage: Stage::Reading,
            head: Vec::new(),
            out: Vec::new(),
            sent: 0,
            due: now + PATIENCE,
            discarded: 0,
            is_rude: false,
            is_new_listener: false,
        })
    }

    /// The same behind TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(self, lock: &Lock) -> Self {
        let stream = match self.stream {
            Stream::Plain(socket) => Stream::Encrypted(Box::new(Encrypted::new(socket, lock))),
            encrypted => encrypted,
        };
        Connection { stream, ..self }
    }

    /// Whether it waits for a handshake to spend, and not for its client.
    pub(crate) fn waits_for_ration(&self) -> bool {
        match &self.stream {
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.is_waiting(),
            _ => false,
        }
    }

    /// Whether its handshake is not over.
    #[cfg(feature = "tls")]
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(&self.stream, Stream::Encrypted(encrypted) if encrypted.is_handshaking())
    }

    /// Begins the handshake of a client that has spoken, if there is one to spend. Whether the connection may have its turn.
    #[cfg(feature = "tls")]
    pub(crate) fn admit(&mut self, lock: &mut Lock, now: Instant) -> bool {
        let Stream::Encrypted(encrypted) = &mut self.stream else { return true };
        match encrypted.admit(lock, now) {
            Admission::Yes => true,
            Admission::Wait => {
                if now >= self.due {
                    encrypted.give_up();
                    self.stage = Stage::Over;
                }
                false
            }
            Admission::Plain(socket) => {
                self.stream = Stream::Plain(socket);
                self.is_rude = true;
                self.finish(&Response::line(400, "this port speaks TLS alone: https://"), now);
                true
            }
        }
    }

    /// Whether it waits to be read, and whether to be written.
    pub(crate) fn wants(&self) -> (bool, bool) {
        let reads = self.stage != Stage::Writing && !self.waits_for_ration();
        (reads, self.sent < self.out.len() || self.stream.holds_back())
    }

    /// Bytes that are not written yet.
    pub(crate) fn behind(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Answers with this and ends.
    pub(crate) fn finish(&mut self, response: &Response, now: Instant) {
        self.out = response.bytes(false);
        (self.sent, self.stage, self.due) = (0, Stage::Writing, now + PATIENCE);
    }

    /// Does whatever can be done without waiting. `room`: whether another listener may be had.
    pub(crate) fn turn(&mut self, state: &State, room: bool, now: Instant) {
        match self.stage {
            Stage::Reading => self.read(state, room, now),
            Stage::Listening | Stage::Lingering => self.discard(),
            Stage::Writing | Stage::Over => {}
        }
        if self.sent < self.out.len() || self.stage == Stage::Writing || self.stream.holds_back() {
            self.write(now);
        }
        if now >= self.due {
            self.expire(now);
        }
    }

    /// An event for a listener.
    pub(crate) fn tell(&mut self, event: &str, now: Instant) {
        if self.behind() == 0 {
            self.due = now + PATIENCE;
        }
        if self.behind() + event.len() > BEHIND {
            self.stage = Stage::Over;
            return;
        }
        self.out.drain(..self.sent);
        self.sent = 0;
        self.out.extend_from_slice(event.as_bytes());
        self.write(now);
    }

    fn read(&mut self, state: &State, room: bool, now: Instant) {
        let mut piece = [0; 4096];
        while self.stage == Stage::Reading {
            match self.stream.read(&mut piece) {
                Ok(0) => self.stage = Stage::Over,
                Ok(count) => {
                    let left = LONGEST.saturating_sub(self.head.len());
                    self.head.extend_from_slice(&piece[..count.min(left)]);
                    self.look(state, room, now);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stage = Stage::Over,
            }
        }
    }

    fn look(&mut self, state: &State, room: bool, now: Instant) {
        let (request, length) = match request::parse(&self.head) {
            Ok(None) => return,
            Ok(Some(whole)) => whole,
            Err(fault) => {
                self.is_rude = true;
                return self.finish(&Response::status(fault.status()), now);
            }
        };
        // The client has sent more than one request, which is all that it gets an answer to.
        self.is_rude |= self.head.len() > length;
        match routes::answer(&request, state) {
            Answer::Whole(response) => self.finish(&response, now),
            Answer::Events(_) if !room => self.finish(&Response::line(503, "there are listeners enough"), now),
            Answer::Events(response) => {
                self.out = response.bytes(true);
                (self.sent, self.stage, self.due) = (0, Stage::Listening, now + PATIENCE);
                self.is_new_listener = true;
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return self.stage = Stage::Over,
                Ok(count) => {
                    self.sent += count;
                    if self.stage == Stage::Listening {
                        self.due = now + PATIENCE;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = Stage::Over,
            }
        }
        match self.stream.flush() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => return self.stage = Stage::Over,
            Ok(()) => {}
        }
        if self.stage == Stage::Writing {
            if self.stream.end().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
            self.stage = if self.is_rude { Stage::Lingering } else { Stage::Over };
            self.due = now + LINGER;
        }
    }

    /// Reads and throws away, to see the end.
    fn discard(&mut self) {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return self.stage = Stage::Over,
                Ok(count) => {
                    self.discarded += count;
                    if self.discarded > DISCARDED {
                        return self.stage = Stage::Over;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = Stage::Over,
            }
        }
    }

    /// Gives up a handshake that is not over: nobody could read an answer. Whether there was one.
    fn gives_up_handshake(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if let Stream::Encrypted(encrypted) = &mut self.stream {
            let is_handshaking = encrypted.is_handshaking();
            encrypted.give_up();
            return is_handshaking;
        }
        false
    }

    fn expire(&mut self, now: Instant) {
        match self.stage {
            Stage::Reading => {
                if self.gives_up_handshake() {
                    return self.stage = Stage::Over;
                }
                self.is_rude = true;
                self.finish(&Response::status(408), now);
                self.write(now);
            }
            // A listener that has all there is waits for the next event, not the port for it.
            Stage::Listening if self.behind() == 0 => self.due = now + PATIENCE,
            _ => self.stage = Stage::Over,
        }
    }
}
