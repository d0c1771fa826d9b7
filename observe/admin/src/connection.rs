//! Connection of the admin port: reads a request head, writes a response or events, closes. Never
//! blocks. Does not contain responses.

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

/// Time limit for receiving a head, for sending a response, and for a subscriber that reads
/// nothing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a client that sent too much may read the response. Closing at once would reset
/// the connection.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum of unsent bytes for a subscriber. A slower subscriber is disconnected.
const UNSENT_MAX: usize = 1 << 20;
/// Maximum of bytes that are discarded from a client that keeps sending.
const DISCARD_MAX: usize = 1 << 20;

/// Stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// The connection receives the request's head.
    Reading,
    /// The connection sends the response.
    Writing,
    /// The connection sends events to a subscriber.
    Streaming,
    /// The client has its response, and sent more than was read.
    Lingering,
    Closed,
}

/// Connection of the admin port.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) stage: ConnectionStage,
    head: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// Latest end of the stage.
    pub(crate) deadline: Instant,
    discarded: usize,
    /// True if bytes after the head may have arrived.
    has_unread_input: bool,
    /// True if the client has just subscribed and has not got the history yet.
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

    /// Wraps the connection in TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(self, acceptor: &TlsAcceptor) -> Self {
        let stream = match self.stream {
            Stream::Plain(socket) => Stream::Encrypted(Box::new(TlsStream::new(socket, acceptor))),
            encrypted => encrypted,
        };
        Connection { stream, ..self }
    }

    /// True if the connection waits for the handshake quota, and not for its client.
    pub(crate) fn awaits_handshake_quota(&self) -> bool {
        match &self.stream {
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.is_waiting(),
            _ => false,
        }
    }

    /// True until the TLS handshake has ended.
    #[cfg(feature = "tls")]
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(&self.stream, Stream::Encrypted(encrypted) if encrypted.is_handshaking())
    }

    /// Starts the handshake of a client that has sent bytes, if the quota allows. Returns true if
    /// the connection may be polled.
    #[cfg(feature = "tls")]
    pub(crate) fn admit(&mut self, acceptor: &mut TlsAcceptor, now: Instant) -> bool {
        let Stream::Encrypted(encrypted) = &mut self.stream else { return true };
        match encrypted.admit(acceptor, now) {
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

    /// Readiness events that the connection waits for: (readable, writable).
    pub(crate) fn interest(&self) -> (bool, bool) {
        let reads = self.stage != ConnectionStage::Writing && !self.awaits_handshake_quota();
        (reads, self.sent < self.out.len() || self.stream.wants_write())
    }

    /// Number of bytes that are not written yet.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends this response, then closes.
    pub(crate) fn finish(&mut self, response: &Response, now: Instant) {
        self.out = response.bytes(false);
        (self.sent, self.stage, self.deadline) = (0, ConnectionStage::Writing, now + TIMEOUT);
    }

    /// Does everything that is possible without blocking. `can_subscribe`: true if another
    /// subscriber is allowed.
    pub(crate) fn poll(&mut self, state: &AdminState, can_subscribe: bool, now: Instant) {
        match self.stage {
            ConnectionStage::Reading => self.read(state, can_subscribe, now),
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

    /// Sends an event to a subscriber; closes the connection if too many bytes are unsent.
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

    fn read(&mut self, state: &AdminState, can_subscribe: bool, now: Instant) {
        let mut piece = [0; 4096];
        while self.stage == ConnectionStage::Reading {
            match self.stream.read(&mut piece) {
                Ok(0) => self.stage = ConnectionStage::Closed,
                Ok(count) => {
                    let left = HEAD_MAX.saturating_sub(self.head.len());
                    self.head.extend_from_slice(&piece[..count.min(left)]);
                    self.handle_request(state, can_subscribe, now);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stage = ConnectionStage::Closed,
            }
        }
    }

    fn handle_request(&mut self, state: &AdminState, can_subscribe: bool, now: Instant) {
        let (request, length) = match request::parse(&self.head) {
            Ok(None) => return,
            Ok(Some(whole)) => whole,
            Err(fault) => {
                self.has_unread_input = true;
                return self.finish(&Response::status(fault.status()), now);
            }
        };
        // The client has sent more than one request; only the first one gets a response.
        self.has_unread_input |= self.head.len() > length;
        match routes::route(&request, state) {
            RouteResponse::Full(response) => self.finish(&response, now),
            RouteResponse::EventStream(_) if !can_subscribe => {
                self.finish(&Response::line(503, "too many listeners"), now)
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

    /// Reads and discards bytes, to detect the end of the stream.
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

    /// Aborts an unfinished handshake, during which no response can be read. Returns true if there
    /// was one.
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
            // The subscriber has got every event and waits for the next one.
            ConnectionStage::Streaming if self.unsent() == 0 => self.deadline = now + TIMEOUT,
            _ => self.stage = ConnectionStage::Closed,
        }
    }
}
