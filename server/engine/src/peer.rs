//! A connection: its socket, its protocol's state, its unsent bytes, and its readiness.

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
    /// Last time at which bytes were received.
    pub(crate) last_received: Time,
    /// Time at which the incomplete request began; `None` if there is none, or its rest was not to
    /// be read.
    pub(crate) partial_since: Option<Time>,
    /// Time at which the connection began to close: pending bytes still leave, received bytes are
    /// discarded.
    pub(crate) closing_since: Option<Time>,
    /// Bytes discarded since then.
    pub(crate) discarded: usize,
    /// Whether the socket, or the protocol's buffer, may hold unhandled bytes.
    pub(crate) readable: bool,
    /// Whether the poll has reported that the peer sends nothing more. Reading then reaches the end
    /// of the stream.
    pub(crate) hung_up: bool,
    /// Whether the end of the stream was read.
    pub(crate) has_ended: bool,
    /// Time at which its last quantum ended, or a poll last put it off. Its requests have waited
    /// for other connections since then, and for its own requests and messages before.
    pub(crate) quantum_end: Time,
    /// Whether unhandled bytes may have waited because the connection was not to be read.
    pub(crate) held_back: bool,
    /// Its share of the core's time.
    pub(crate) share: Share,
    /// Memory granted for a long request, in bytes.
    pub(crate) receive_grant: usize,
    /// Whether it waits for such memory, or for memory for responses.
    pub(crate) is_short_of_memory: bool,
    /// Memory, in bytes, that its unsent responses held after the last flush.
    pub(crate) backlog: usize,
    /// Whether it has taken everything at the last flush. With a protocol that bounds its
    /// responses: whether it took a whole long one.
    pub(crate) drains_output: bool,
    /// The core's lists that contain it.
    pub(crate) listed: ListFlags,
    /// Result of a batch read; the bytes are in the protocol's buffer.
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

    /// Returns whether the socket may be read.
    pub(crate) fn may_be_read(&self, limits: &Limits) -> bool {
        self.closing_since.is_none()
            && !self.share.is_paused()
            && self.out.unsent() < self.out.unsent_limit(limits.unsent)
            && P::may_read(&self.connection)
    }

    /// Adjusts the memory grant to the incoming request, and returns unneeded memory. Returns
    /// whether there is enough.
    pub(crate) fn reserve_memory(&mut self, budget: &mut ReceiveBudget) -> bool {
        if self.receive_grant > 0 && budget.is_tight() {
            P::input(&mut self.connection).release();
        }
        let may = budget.resize(&mut self.receive_grant, P::input(&mut self.connection).wanted());
        // The flag also stands for memory for responses, for which the scan must return to it.
        self.is_short_of_memory |= !may;
        may
    }

    /// Returns whether only a read is missing before its requests can be handled.
    pub(crate) fn may_be_read_ahead(&mut self, limits: &Limits) -> bool {
        P::input(&mut self.connection).buffered() == 0
            && self.ahead.is_none()
            && P::input(&mut self.connection).wanted() <= self.receive_grant
            && self.stream.reads_socket()
            && self.stream.raw().is_some()
            && self.may_be_read(limits)
    }

    /// Time that the bytes just `received` waited for other connections, in the server's queue.
    /// Excludes waits for the same connection's requests, and waits while the connection was not to
    /// be read. Otherwise a paused client, or one that sends without pause, would make the
    /// controller see an overload.
    pub(crate) fn queueing_delay(&self, received: &ReadOutcome, unseen: Nanos, now: Time) -> Nanos {
        if self.held_back { Nanos::ZERO } else { received.wait.unwrap_or(unseen).min(now.since(self.quantum_end)) }
    }

    /// Reads once into the protocol's buffer.
    pub(crate) fn receive(&mut self, receiver: &mut SocketReader) -> io::Result<ReadOutcome> {
        let spare = P::input(&mut self.connection).spare();
        let length = spare.len().min(self.share.read_bytes());
        let received = self.stream.receive(receiver, &mut spare[..length]);
        P::input(&mut self.connection).filled(received.as_ref().map_or(0, |received| received.bytes));
        self.note(received)
    }

    /// Does the same with the result of a batch read of up to `room` bytes.
    pub(crate) fn receive_ahead(&mut self, room: usize, received: io::Result<crate::batch::ReadBytes<'_>>) {
        let received = match received {
            Ok(received) => {
                let outcome = ReadOutcome::of(received.bytes.len(), room, received.stamp.and_then(age));
                let outcome = self.stream.decode(outcome, received.bytes, P::input(&mut self.connection).spare());
                P::input(&mut self.connection).filled(outcome.as_ref().map_or(0, |outcome| outcome.bytes));
                outcome
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::NOTHING),
            Err(error) => Err(error),
        };
        self.ahead = Some(self.note(received));
    }

    fn note(&mut self, received: io::Result<ReadOutcome>) -> io::Result<ReadOutcome> {
        if matches!(received, Ok(ReadOutcome { state: ReadState::Empty, .. })) {
            // The hang-up was reported for the slot's previous connection.
            self.hung_up = false;
        }
        received
    }

    /// Sends as much as the socket takes, and returns the number of bytes.
    pub(crate) fn send(&mut self, now: Time, datagrams: &mut Option<OutboundDatagrams>) -> io::Result<usize> {
        let stream = &mut self.stream;
        self.out.flush(|bytes| stream.send(bytes, now, datagrams), now)
    }

    /// Returns the bytes for the socket, if these may leave in a batch call.
    pub(crate) fn sendable(&mut self) -> Option<&[u8]> {
        self.stream.seal_for_batch(self.out.sendable()?)
    }

    /// Notes that the socket took `count` bytes of [`Peer::sendable`], and sends the rest, if any.
    pub(crate) fn finish_write(&mut self, count: usize, now: Time) -> io::Result<usize> {
        let count = self.stream.sent(count);
        self.out.advance(count);
        Ok(count + self.send(now, &mut None)?)
    }

    /// Returns whether a closing connection has sent everything.
    pub(crate) fn is_over(&self) -> bool {
        if self.out.unsent() > 0 {
            return false;
        }
        let may_end = P::is_closing(&self.connection) || (self.has_ended && !self.listed.is_unread() && !self.readable);
        self.closing_since.is_some() || (may_end && P::unanswered(&self.connection) == 0)
    }
}
