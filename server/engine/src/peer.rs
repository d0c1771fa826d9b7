//! A connection: its socket, its protocol's state, its unsent bytes, and what is known of its readiness.

use crate::connection_io::{ConnectionIo, OutboundDatagrams};
use crate::fair_shares::Share;
use crate::input::Input;
use crate::job::ConnectionId;
use crate::limits::Limits;
use crate::protocol::Protocol;
use crate::readiness::ListFlags;
use crate::receive::{ReadOutcome, ReadState, SocketReader, age};
use crate::receive_budget::ReceiveBudget;
use crate::send_buffer::SendBuffer;
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use std::io;

pub(crate) struct Peer<P: Protocol, S> {
    pub(crate) stream: ConnectionIo<S>,
    pub(crate) id: ConnectionId,
    pub(crate) connection: P::Connection,
    pub(crate) out: SendBuffer,
    /// The last time that anything came.
    pub(crate) last_received: Time,
    /// When the incomplete request began; `None` if there is none, or its rest was not to be read.
    pub(crate) partial_since: Option<Time>,
    /// Time at which the peer was told its last words: what waits goes out, what comes is thrown away.
    pub(crate) closing_since: Option<Time>,
    /// Bytes that were read since then.
    pub(crate) discarded: usize,
    /// Whether the socket, or the protocol's buffer, may hold bytes that are not handled.
    pub(crate) readable: bool,
    /// Whether the poll has said that the peer sends nothing more: then reading comes to the end of the stream.
    pub(crate) hung_up: bool,
    /// Whether the end of the stream has been read.
    pub(crate) has_ended: bool,
    /// When its last turn ended, or when a poll last put it off. Since then its requests have waited for
    /// others; before, for its own requests and messages.
    pub(crate) quantum_end: Time,
    /// Whether what is not handled may have waited because the connection was not to be read.
    pub(crate) held_back: bool,
    /// Its share of the core's time.
    pub(crate) share: Share,
    /// Memory that was granted for a long request, in bytes.
    pub(crate) receive_grant: usize,
    /// Whether it waits for such memory, or for that of answers.
    pub(crate) is_short_of_memory: bool,
    /// Memory that its unsent answers hold, in bytes, when they were last sent.
    pub(crate) backlog: usize,
    /// Whether it has taken all that was last sent to it; of a protocol that bounds its answers, a long one as a whole.
    pub(crate) drains_output: bool,
    /// The core's lists that have it.
    pub(crate) listed: ListFlags,
    /// Result of a read ahead, together with other sockets; the bytes are in the protocol's buffer.
    pub(crate) ahead: Option<io::Result<ReadOutcome>>,
}

impl<P: Protocol, S: Stream> Peer<P, S> {
    pub(crate) fn new(stream: ConnectionIo<S>, id: ConnectionId, connection: P::Connection, now: Time) -> Self {
        Peer {
            stream,
            id,
            connection,
            out: SendBuffer::default(),
            last_received: now,
            partial_since: None,
            closing_since: None,
            discarded: 0,
            readable: true,
            hung_up: false,
            has_ended: false,
            quantum_end: now,
            held_back: false,
            share: Share::new(),
            receive_grant: 0,
            is_short_of_memory: false,
            backlog: 0,
            drains_output: false,
            listed: ListFlags::default(),
            ahead: None,
        }
    }

    /// Whether bytes that come are to be taken from the socket.
    pub(crate) fn may_be_read(&self, limits: &Limits) -> bool {
        self.closing_since.is_none()
            && !self.share.is_paused()
            && self.out.unsent() < self.out.unsent_limit(limits.unsent)
            && P::may_read(&self.connection)
    }

    /// Whether there is memory for what is coming. Gives back what is not needed.
    pub(crate) fn reserve_memory(&mut self, room: &mut ReceiveBudget) -> bool {
        if self.receive_grant > 0 && room.is_tight() {
            P::input(&mut self.connection).release();
        }
        let may = room.resize(&mut self.receive_grant, P::input(&mut self.connection).wanted());
        // It may be short of memory for answers as well, and the sweep must come back to it for that.
        self.is_short_of_memory |= !may;
        may
    }

    /// Whether reading it is all there is to do before its requests can be handled.
    pub(crate) fn may_be_read_ahead(&mut self, limits: &Limits) -> bool {
        P::input(&mut self.connection).buffered() == 0
            && self.ahead.is_none()
            && P::input(&mut self.connection).wanted() <= self.receive_grant
            && self.stream.reads_socket()
            && self.stream.raw().is_some()
            && self.may_be_read(limits)
    }

    /// How long what was just `received` has waited for others, which is the server's queue. What it has waited for more of
    /// the same connection, or because the connection was not to be read, says nothing about the server and must not cost
    /// others: a client that is paused, or that sends without a pause, would else make the controller think of overload.
    pub(crate) fn queueing_delay(&self, received: &ReadOutcome, unseen: Nanos, now: Time) -> Nanos {
        if self.held_back { Nanos::ZERO } else { received.wait.unwrap_or(unseen).min(now.since(self.quantum_end)) }
    }

    /// Reads once into the protocol's buffer.
    pub(crate) fn receive(&mut self, receiver: &mut SocketReader) -> io::Result<ReadOutcome> {
        let spare = P::input(&mut self.connection).spare();
        let room = spare.len().min(self.share.read_bytes());
        let received = self.stream.receive(receiver, &mut spare[..room]);
        P::input(&mut self.connection).filled(received.as_ref().map_or(0, |received| received.bytes));
        self.note(received)
    }

    /// As [`Peer::receive`], of what was read for it up to `room` bytes: puts it where the next requests come from.
    pub(crate) fn receive_ahead(&mut self, room: usize, received: io::Result<crate::batch::ReadBytes<'_>>) {
        let received = match received {
            Ok(received) => {
                let came = ReadOutcome::of(received.bytes.len(), room, received.stamp.and_then(age));
                let came = self.stream.decode(came, received.bytes, P::input(&mut self.connection).spare());
                P::input(&mut self.connection).filled(came.as_ref().map_or(0, |came| came.bytes));
                came
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::NOTHING),
            Err(error) => Err(error),
        };
        self.ahead = Some(self.note(received));
    }

    fn note(&mut self, received: io::Result<ReadOutcome>) -> io::Result<ReadOutcome> {
        if matches!(received, Ok(ReadOutcome { state: ReadState::Empty, .. })) {
            // What the poll said was meant for this place's last connection.
            self.hung_up = false;
        }
        received
    }

    /// Sends what the socket takes; how many bytes that was.
    pub(crate) fn send(&mut self, now: Time, datagrams: &mut Option<OutboundDatagrams>) -> io::Result<usize> {
        let stream = &mut self.stream;
        self.out.flush(|bytes| stream.send(bytes, now, datagrams), now)
    }

    /// Bytes for the socket that say what is to be sent, if that may leave together with others'.
    pub(crate) fn sendable(&mut self) -> Option<&[u8]> {
        self.stream.seal_for_batch(self.out.sendable()?)
    }

    /// The socket took so much of what was [sendable](Peer::sendable); tries the rest, if there is one.
    pub(crate) fn finish_write(&mut self, count: usize, now: Time) -> io::Result<usize> {
        let count = self.stream.sent(count);
        self.out.advance(count);
        Ok(count + self.send(now, &mut None)?)
    }

    /// Whether everything owed has gone out of a connection that is to end.
    pub(crate) fn is_over(&self) -> bool {
        if self.out.unsent() > 0 {
            return false;
        }
        let leaves = P::is_closing(&self.connection) || (self.has_ended && !self.listed.is_unread() && !self.readable);
        self.closing_since.is_some() || (leaves && P::unanswered(&self.connection) == 0)
    }
}
