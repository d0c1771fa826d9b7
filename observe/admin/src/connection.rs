//! A connection of the admin port: reads a head, writes an answer or events, ends. Never waits. Never here: which answer.

use crate::request;
use crate::response::Response;
use crate::routes::{self, AdminState, RouteResponse};
use crate::stream::Stream;
#[cfg(feature = "tls")]
use crate::tls::{HandshakeAdmission, TlsAcceptor, TlsStream};
use leeward_http1::HEAD_MAX;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a head may take to come, an answer to go, and a listener to take nothing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client that has sent more than was read has to hear the answer: closing at once would reset the connection.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that may wait for a listener. Whoever is further behind is let go.
const UNSENT_MAX: usize = 1 << 20;
/// Bytes that are thrown away from a client that goes on sending.
const DISCARD_MAX: usize = 1 << 20;

/// Stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// Its head is coming.
    Reading,
    /// Its answer is going.
    Writing,
    /// A listener to events.
    Streaming,
    /// A peer that has its answer, and has sent more than was read.
    Lingering,
    Closed,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) stage: ConnectionStage,
    head: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// When the stage ends at the latest.
    pub(crate) deadline: Instant,
    discarded: usize,
    /// Whether more than the head may have come.
    has_unread_input: bool,
    /// Whether it has just begun to listen, and has heard nothing of the past yet.
    pub(crate) is_new_subscriber: bool,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, now: Instant) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let _ = socket.set_nodelay(true);
        Ok(Connection {
            stream: Stream::Plain(socket),
            stage: ConnectionStage::Reading,
            head: Vec::new(),
            out: Vec::new(),
            sent: 0,
            deadline: now + TIMEOUT,
            discarded: 0,
            has_unread_input: false,
            is_new_subscriber: false,
        })
    }

    /// The same behind TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(self, lock: &TlsAcceptor) -> Self {
        let stream = match self.stream {
            Stream::Plain(socket) => Stream::Encrypted(Box::new(TlsStream::new(socket, lock))),
            encrypted => encrypted,
        };
        Connection { stream, ..self }
    }

    /// Whether it waits for a handshake to spend, and not for its client.
    pub(crate) fn awaits_handshake_quota(&self) -> bool {
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
    pub(crate) fn admit(&mut self, lock: &mut TlsAcceptor, now: Instant) -> bool {
        let Stream::Encrypted(encrypted) = &mut self.stream else { return true };
        match encrypted.admit(lock, now) {
            HandshakeAdmission::Proceed => true,
            HandshakeAdmission::Wait => {
                if now >= self.deadline {
                    encrypted.abort_handshake();
                    self.stage = ConnectionStage::Closed;
                }
                false
            }
            HandshakeAdmission::Plain(socket) => {
                self.stream = Stream::Plain(socket);
                self.has_unread_input = true;
                self.finish(&Response::line(400, "this port speaks TLS alone: https://"), now);
                true
            }
        }
    }

    /// Whether it waits to be read, and whether to be written.
    pub(crate) fn interest(&self) -> (bool, bool) {
        let reads = self.stage != ConnectionStage::Writing && !self.awaits_handshake_quota();
        (reads, self.sent < self.out.len() || self.stream.wants_write())
    }

    /// Bytes that are not written yet.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Answers with this and ends.
    pub(crate) fn finish(&mut self, response: &Response, now: Instant) {
        self.out = response.bytes(false);
        (self.sent, self.stage, self.deadline) = (0, ConnectionStage::Writing, now + TIMEOUT);
    }

    /// Does whatever can be done without waiting. `room`: whether another listener may be had.
    pub(crate) fn poll(&mut self, state: &AdminState, room: bool, now: Instant) {
        match self.stage {
            ConnectionStage::Reading => self.read(state, room, now),
            ConnectionStage::Streaming | ConnectionStage::Lingering => self.discard(),
            ConnectionStage::Writing | ConnectionStage::Closed => {}
        }
        if self.sent < self.out.len() || self.stage == ConnectionStage::Writing || self.stream.wants_write() {
            self.write(now);
        }
        if now >= self.deadline {
            self.expire(now);
        }
    }

    /// An event for a listener.
    pub(crate) fn push_event(&mut self, event: &str, now: Instant) {
        if self.unsent() == 0 {
            self.deadline = now + TIMEOUT;
        }
        if self.unsent() + event.len() > UNSENT_MAX {
            self.stage = ConnectionStage::Closed;
            return;
        }
        self.out.drain(..self.sent);
        self.sent = 0;
        self.out.extend_from_slice(event.as_bytes());
        self.write(now);
    }

    fn read(&mut self, state: &AdminState, room: bool, now: Instant) {
        let mut piece = [0; 4096];
        while self.stage == ConnectionStage::Reading {
            match self.stream.read(&mut piece) {
                Ok(0) => self.stage = ConnectionStage::Closed,
                Ok(count) => {
                    let left = HEAD_MAX.saturating_sub(self.head.len());
                    self.head.extend_from_slice(&piece[..count.min(left)]);
                    self.handle_request(state, room, now);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stage = ConnectionStage::Closed,
            }
        }
    }

    fn handle_request(&mut self, state: &AdminState, room: bool, now: Instant) {
        let (request, length) = match request::parse(&self.head) {
            Ok(None) => return,
            Ok(Some(whole)) => whole,
            Err(fault) => {
                self.has_unread_input = true;
                return self.finish(&Response::status(fault.status()), now);
            }
        };
        // The client has sent more than one request, which is all that it gets an answer to.
        self.has_unread_input |= self.head.len() > length;
        match routes::route(&request, state) {
            RouteResponse::Full(response) => self.finish(&response, now),
            RouteResponse::EventStream(_) if !room => {
                self.finish(&Response::line(503, "there are listeners enough"), now)
            }
            RouteResponse::EventStream(response) => {
                self.out = response.bytes(true);
                (self.sent, self.stage, self.deadline) = (0, ConnectionStage::Streaming, now + TIMEOUT);
                self.is_new_subscriber = true;
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return self.stage = ConnectionStage::Closed,
                Ok(count) => {
                    self.sent += count;
                    if self.stage == ConnectionStage::Streaming {
                        self.deadline = now + TIMEOUT;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = ConnectionStage::Closed,
            }
        }
        match self.stream.flush() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => return self.stage = ConnectionStage::Closed,
            Ok(()) => {}
        }
        if self.stage == ConnectionStage::Writing {
            if self.stream.close().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
            self.stage = if self.has_unread_input { ConnectionStage::Lingering } else { ConnectionStage::Closed };
            self.deadline = now + LINGER;
        }
    }

    /// Reads and throws away, to see the end.
    fn discard(&mut self) {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return self.stage = ConnectionStage::Closed,
                Ok(count) => {
                    self.discarded += count;
                    if self.discarded > DISCARD_MAX {
                        return self.stage = ConnectionStage::Closed;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = ConnectionStage::Closed,
            }
        }
    }

    /// Gives up a handshake that is not over: nobody could read an answer. Whether there was one.
    fn abort_handshake(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if let Stream::Encrypted(encrypted) = &mut self.stream {
            let is_handshaking = encrypted.is_handshaking();
            encrypted.abort_handshake();
            return is_handshaking;
        }
        false
    }

    fn expire(&mut self, now: Instant) {
        match self.stage {
            ConnectionStage::Reading => {
                if self.abort_handshake() {
                    return self.stage = ConnectionStage::Closed;
                }
                self.has_unread_input = true;
                self.finish(&Response::status(408), now);
                self.write(now);
            }
            // A listener that has all there is waits for the next event, not the port for it.
            ConnectionStage::Streaming if self.unsent() == 0 => self.deadline = now + TIMEOUT,
            _ => self.stage = ConnectionStage::Closed,
        }
    }
}
