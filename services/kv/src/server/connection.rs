//! One connection's bytes: what came in and is no request yet, what shall go out and is not sent.

use crate::protocol::{Decoder, Request};
use leeward_control::server::Session;
use leeward_control::units::{Nanos, Time};
use leeward_rpc::server::parts::{Received, Receiver};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Write};

/// A connection's place on its core, and which of the place's tenants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) slot: u32,
    pub(super) tenant: u32,
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
    pub(super) decoder: Decoder,
    pub(super) session: Session,
    /// Where the next request is put.
    pub(super) request: Request,
    /// Whether a request is with the cores: the next one waits for its end, for they have an order.
    pub(super) in_flight: bool,
    /// Whether the controller knows of that one.
    pub(super) counted: bool,
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
    /// Since when a peer for which bytes wait has taken none.
    pub(super) stuck_since: Option<Time>,
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
    pub(super) out: Vec<u8>,
    sent: usize,
}

/// An output buffer that was larger is given back when it is empty.
const KEPT_BUFFER: usize = 64 * 1024;

impl Connection {
    pub(super) fn new(stream: TcpStream, tenant: u32, session: Session, data_max: usize, now: Time) -> Self {
        Connection {
            stream,
            tenant,
            decoder: Decoder::new(data_max),
            session,
            request: Request::default(),
            in_flight: false,
            counted: false,
            arrived: now,
            heard: now,
            part_since: None,
            ending_since: None,
            discarded: 0,
            stuck_since: None,
            readable: true,
            hung_up: false,
            has_ended: false,
            held_back: false,
            listed: false,
            dirty: false,
            out: Vec::new(),
            sent: 0,
        }
    }

    /// Reads once into the decoder; also how much, and how long that had waited, if it is known.
    pub(super) fn read(&mut self, receiver: &mut Receiver) -> io::Result<(Came, usize, Option<Nanos>)> {
        let spare = self.decoder.spare();
        let room = spare.len();
        loop {
            match receiver.receive(&self.stream, spare) {
                Ok(Received { bytes: 0, .. }) => return Ok((Came::End, 0, None)),
                Ok(Received { bytes, waited }) => {
                    self.decoder.filled(bytes);
                    return Ok((if bytes < room { Came::Drained } else { Came::More }, bytes, waited));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Nothing, not even an end: what the poll said was meant for this place's last tenant.
                    self.hung_up = false;
                    return Ok((Came::Drained, 0, None));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the socket takes; how much that was.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<usize> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let count = self.sent - before;
                    if count > 0 {
                        self.stuck_since = None;
                    }
                    self.stuck_since.get_or_insert(now);
                    // What has gone is not kept until the rest has: a slow reader's buffer would never shrink.
                    if self.sent > KEPT_BUFFER {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
        let count = self.sent - before;
        self.out.clear();
        if self.out.capacity() > KEPT_BUFFER {
            self.out = Vec::new();
        }
        self.sent = 0;
        self.stuck_since = None;
        Ok(count)
    }
}
