//! One connection's bytes: what came in and is not decoded, what shall go out and is not sent.

use super::enforcement::Enforcement;
use super::outbox::Outbox;
use super::receive::{Came, Received, Receiver, age};
use crate::wire::{Decoder, EncodeError, Encoder, Frame, PayloadLimit, RequestId, Side};
use leeward_control::server::{Session, Ticket};
use leeward_control::units::Time;
use mio::net::TcpStream;
use std::io;

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

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) tenant: u32,
    pub(super) state: State,
    pub(super) decoder: Decoder,
    /// `Some` while registered.
    pub(super) session: Option<Session>,
    /// Whether the client keeps to its window; before it registers there is nothing to keep to.
    pub(super) enforcement: Enforcement,
    /// Calls that are unanswered, with the controller's tickets. Few: a list is faster than a set.
    pub(super) unanswered: Vec<(RequestId, Ticket)>,
    /// The last time anything came.
    pub(super) heard: Time,
    /// Since when a frame has been under way of which the rest could be read.
    pub(super) frame_since: Option<Time>,
    /// Since when it has been ending.
    pub(super) ending_since: Option<Time>,
    /// Bytes that were read since then, and thrown away.
    pub(super) discarded: usize,
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
    pub(super) ahead: Option<io::Result<Received>>,
    encoder: Encoder,
    pub(super) out: Outbox,
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
            readable: true,
            hung_up: false,
            held_back: false,
            unread: false,
            dirty: false,
            ahead: None,
            encoder: Encoder::new(limit),
            out: Outbox::default(),
        }
    }

    /// The longest payload that the peer accepts.
    pub(super) fn peer_accepts(&mut self, limit: PayloadLimit) {
        self.encoder = Encoder::new(limit);
    }

    /// Reads once into the decoder.
    pub(super) fn read(&mut self, receiver: &mut Receiver) -> io::Result<Received> {
        let received = receiver.receive(&self.stream, self.decoder.spare());
        self.decoder.filled(received.as_ref().map_or(0, |received| received.bytes));
        self.note(received)
    }

    fn note(&mut self, received: io::Result<Received>) -> io::Result<Received> {
        if matches!(received, Ok(Received { came: Came::Nothing, .. })) {
            // What the poll said was meant for this place's last tenant.
            self.hung_up = false;
        }
        received
    }

    /// As [`Connection::read`], of what was read for it up to `room` bytes: puts it where the next frames come from.
    pub(super) fn read_ahead(&mut self, room: usize, received: io::Result<leeward_batch::Received<'_>>) {
        let received = match received {
            Ok(received) => {
                let count = received.bytes.len();
                self.decoder.spare()[..count].copy_from_slice(received.bytes);
                self.decoder.filled(count);
                Ok(Received::of(count, room, received.stamp.and_then(age)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::NOTHING),
            Err(error) => Err(error),
        };
        self.ahead = Some(self.note(received));
    }

    pub(super) fn append(&mut self, frame: &Frame<'_>) -> Result<(), EncodeError> {
        self.encoder.append(frame, self.out.bytes()).map(|_| ())
    }

    /// Whether the connection has been reset, or can't go on for another reason that the system knows.
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.unsent()
    }

    /// The socket took so much of what was to be sent; tries the rest, if there is one.
    pub(super) fn took(&mut self, count: usize, now: Time) -> io::Result<usize> {
        self.out.took(count);
        self.flush(now)
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<usize> {
        self.out.flush(&self.stream, now)
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
        connection.out.bytes().resize(64 << 20, 1);
        connection.flush(Time(2)).unwrap();
        assert_eq!(connection.out.stuck_since(), Some(Time(2)));
        peer.set_nonblocking(true).unwrap();
        let mut sink = vec![0; 1 << 20];
        for now in 3..6 {
            let left = connection.unsent();
            while connection.unsent() == left {
                while peer.read(&mut sink).is_ok_and(|count| count > 0) {}
                connection.flush(Time(now)).unwrap();
            }
            assert!(connection.unsent() > 0, "more than any socket's buffers");
            assert_eq!(connection.out.stuck_since(), Some(Time(now)));
        }
    }
}
