//! One connection's bytes: what came in and is not decoded, what shall go out and is not sent.

use super::enforcement::Enforcement;
use super::receive::{Received, Receiver, age};
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
    /// Something fatal was said; what is in the buffer goes out, then it ends. What comes is thrown away.
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
    /// Since when a frame has been under way of which the rest could be read.
    pub(super) frame_since: Option<Time>,
    /// Since when it has been ending.
    pub(super) ending_since: Option<Time>,
    /// Bytes that were read since then, and thrown away.
    pub(super) discarded: usize,
    /// Since when a peer for which bytes wait has taken none.
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
    /// What has been read ahead, together with others; the bytes are in the decoder.
    pub(super) ahead: Option<io::Result<(Came, Option<Nanos>)>>,
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
            frame_since: None,
            ending_since: None,
            discarded: 0,
            stuck_since: None,
            readable: true,
            hung_up: false,
            held_back: false,
            unread: false,
            dirty: false,
            ahead: None,
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

    /// As [`Connection::read`], of what was read for it up to `room` bytes: puts it where the next frames come from.
    pub(super) fn read_ahead(&mut self, room: usize, received: io::Result<leeward_batch::Received<'_>>) {
        self.ahead = Some(match received {
            Ok(received) if received.bytes.is_empty() => Ok((Came::End, None)),
            Ok(received) => {
                let count = received.bytes.len();
                self.decoder.spare()[..count].copy_from_slice(received.bytes);
                self.decoder.filled(count);
                Ok((if count < room { Came::Drained } else { Came::More }, received.stamp.and_then(age)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.hung_up = false;
                Ok((Came::Drained, None))
            }
            Err(error) => Err(error),
        });
    }

    pub(super) fn append(&mut self, frame: &Frame<'_>) -> Result<(), EncodeError> {
        self.encoder.append(frame, &mut self.out).map(|_| ())
    }

    /// Whether the connection has been reset, or can't go on for another reason that the system knows.
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// What waits to be sent, unless the socket had no room for it.
    pub(super) fn sendable(&self) -> Option<&[u8]> {
        (self.stuck_since.is_none() && self.unsent() > 0).then(|| &self.out[self.sent..])
    }

    /// The socket took so much of [`Connection::sendable`]; tries the rest, if there is one.
    pub(super) fn took(&mut self, count: usize, now: Time) -> io::Result<()> {
        self.sent += count;
        self.flush(now)
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<()> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent > before {
                        self.stuck_since = None;
                    }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_peer_that_takes_something_is_not_stuck() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(TcpStream::from_std(stream), 0, PayloadLimit::DEFAULT, Time(1));
        connection.out = vec![1; 64 << 20];
        connection.flush(Time(2)).unwrap();
        assert_eq!(connection.stuck_since, Some(Time(2)));
        peer.set_nonblocking(true).unwrap();
        let mut sink = vec![0; 1 << 20];
        for now in 3..6 {
            let left = connection.unsent();
            while connection.unsent() == left {
                while peer.read(&mut sink).is_ok_and(|count| count > 0) {}
                connection.flush(Time(now)).unwrap();
            }
            assert!(connection.unsent() > 0, "more than any socket's buffers");
            assert_eq!(connection.stuck_since, Some(Time(now)));
        }
    }
}
