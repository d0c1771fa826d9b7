//! One connection's bytes: what came in and is not decoded, what shall go out and is not sent.

use super::enforcement::Enforcement;
use super::receive::{Received, Receiver};
use crate::wire::{Decoder, EncodeError, Encoder, Frame, PayloadLimit, RequestId, Side};
use leeward_control::server::Session;
use leeward_control::units::{Nanos, Time};
use mio::net::TcpStream;
use std::io::{self, Write};

/// A connection's place on its core, and which of the place's tenants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) slot: u32,
    pub(super) tenant: u32,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing has come yet.
    Fresh,
    /// Registered.
    Open,
    /// No more calls will come; the answers owed go out, then it ends.
    Leaving,
    /// Something fatal was said; what is in the buffer goes out, then it ends.
    Ending,
}

/// What reading has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// All that was there.
    Drained,
    /// Something; more may be there.
    More,
    /// The peer has closed its half.
    End,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) tenant: u32,
    pub(super) state: State,
    pub(super) decoder: Decoder,
    /// `Some` while registered.
    pub(super) session: Option<Session>,
    /// Whether the client keeps to its window; before it registers there is nothing to keep to.
    pub(super) enforcement: Enforcement,
    /// Calls that are unanswered. Few: a list is faster than a set.
    pub(super) unanswered: Vec<RequestId>,
    /// The last time anything came.
    pub(super) heard: Time,
    /// When bytes began to wait for a peer that does not read.
    pub(super) stuck_since: Option<Time>,
    /// Whether the socket, or the decoder, may hold bytes that are unread.
    pub(super) readable: bool,
    /// Whether the poll has said that the peer sends nothing more: then reading comes to the end of the stream.
    pub(super) hung_up: bool,
    /// Whether what is unread may have waited because the connection was not to be read.
    pub(super) held_back: bool,
    /// Whether it is in the core's list of those to read.
    pub(super) unread: bool,
    /// Whether it is in the core's list of those to flush.
    pub(super) dirty: bool,
    encoder: Encoder,
    out: Vec<u8>,
    sent: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, tenant: u32, limit: PayloadLimit, now: Time) -> Self {
        Connection {
            stream,
            tenant,
            state: State::Fresh,
            decoder: Decoder::new(Side::Client, limit),
            session: None,
            enforcement: Enforcement::advising(),
            unanswered: Vec::new(),
            heard: now,
            stuck_since: None,
            readable: true,
            hung_up: false,
            held_back: false,
            unread: false,
            dirty: false,
            encoder: Encoder::new(limit),
            out: Vec::new(),
            sent: 0,
        }
    }

    /// The longest payload that the peer accepts.
    pub(super) fn peer_accepts(&mut self, limit: PayloadLimit) {
        self.encoder = Encoder::new(limit);
    }

    /// Reads once into the decoder; also how long what came had waited, if that is known.
    pub(super) fn read(&mut self, receiver: &mut Receiver) -> io::Result<(Came, Option<Nanos>)> {
        let spare = self.decoder.spare();
        let room = spare.len();
        loop {
            match receiver.receive(&self.stream, spare) {
                Ok(Received { bytes: 0, .. }) => return Ok((Came::End, None)),
                Ok(Received { bytes, waited }) => {
                    self.decoder.filled(bytes);
                    // A stream socket that gives less than asked for has no more (epoll(7), on edge triggering).
                    return Ok((if bytes < room { Came::Drained } else { Came::More }, waited));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Nothing, not even an end: what the poll said was meant for this place's last tenant.
                    self.hung_up = false;
                    return Ok((Came::Drained, None));
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn append(&mut self, frame: &Frame<'_>) -> Result<(), EncodeError> {
        self.encoder.append(frame, &mut self.out).map(|_| ())
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stuck_since.get_or_insert(now);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        // A burst should not be paid for ever.
        if self.out.capacity() > KEPT_BUFFER {
            self.out = Vec::new();
        }
        self.sent = 0;
        self.stuck_since = None;
        Ok(())
    }

    /// Whether everything owed has gone out, so that a connection which is to end can.
    pub(super) fn may_end(&self) -> bool {
        let owes_nothing = match self.state {
            State::Leaving => self.unanswered.is_empty(),
            State::Ending => true,
            State::Fresh | State::Open => false,
        };
        owes_nothing && self.unsent() == 0
    }
}

/// An output buffer that was larger is given back when it is empty.
const KEPT_BUFFER: usize = 64 * 1024;
