//! One connection's bytes: what came in and is no request yet, what shall go out and is not sent.

use crate::protocol::{Decoder, Request};
use leeward_control::server::{Session, Ticket};
use leeward_control::units::Time;
use leeward_rpc::server::parts::{Came, Outbox, Received, Receiver};
use mio::net::TcpStream;
use std::io;

/// A connection's place on its core, and which of the place's tenants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) slot: u32,
    pub(super) tenant: u32,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) tenant: u32,
    pub(super) decoder: Decoder,
    pub(super) session: Session,
    /// Where the next request is put.
    pub(super) request: Request,
    /// Whether a request is with the cores: the next one waits for its end, for they have an order.
    pub(super) in_flight: bool,
    /// The controller's ticket of that one, if the controller knows of it.
    pub(super) ticket: Option<Ticket>,
    /// When what was read last had come.
    pub(super) arrived: Time,
    /// The last time that anything came.
    pub(super) heard: Time,
    /// Since when a part of a request has been there of which the rest could be read.
    pub(super) part_since: Option<Time>,
    /// Since when it has been ending: what waits goes out, what comes is thrown away.
    pub(super) ending_since: Option<Time>,
    /// Bytes that were read since then.
    pub(super) discarded: usize,
    /// Whether the socket may hold bytes that are unread.
    pub(super) readable: bool,
    /// Whether the poll has said that the peer sends nothing more: then reading comes to the end of the stream.
    pub(super) hung_up: bool,
    /// Whether the end of the stream has been read.
    pub(super) has_ended: bool,
    /// Whether what is unread may have waited because the connection was not to be read.
    pub(super) held_back: bool,
    /// Whether it is in the core's list of those to look at.
    pub(super) listed: bool,
    /// Whether it is in the core's list of those to flush.
    pub(super) dirty: bool,
    pub(super) out: Outbox,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, tenant: u32, session: Session, data_max: usize, now: Time) -> Self {
        Connection {
            stream,
            tenant,
            decoder: Decoder::new(data_max),
            session,
            request: Request::default(),
            in_flight: false,
            ticket: None,
            arrived: now,
            heard: now,
            part_since: None,
            ending_since: None,
            discarded: 0,
            readable: true,
            hung_up: false,
            has_ended: false,
            held_back: false,
            listed: false,
            dirty: false,
            out: Outbox::default(),
        }
    }

    /// Reads once into the decoder.
    pub(super) fn read(&mut self, receiver: &mut Receiver) -> io::Result<Received> {
        let received = receiver.receive(&self.stream, self.decoder.spare())?;
        self.decoder.filled(received.bytes);
        if received.came == Came::Nothing {
            // What the poll said was meant for this place's last tenant.
            self.hung_up = false;
        }
        Ok(received)
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.unsent()
    }

    /// Sends what the socket takes; how much that was.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<usize> {
        self.out.flush(&self.stream, now)
    }
}
