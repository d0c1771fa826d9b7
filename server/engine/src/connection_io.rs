//! Means by which a connection's bytes travel: a stream of its own, encrypted or not, or the core's datagrams.

use crate::batch::messages::Outgoing;
use crate::closing_handshake::ClosingHandshake;
use crate::encryption::EncryptedStream;
use crate::receive::{ReadOutcome, SocketReader};
use crate::stream::Stream;
use leeward_core::units::Time;
use leeward_datagram::server::Link;
use mio::Registry;
use mio::net::UdpSocket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// A session whose frames come and go in datagrams.
pub(crate) struct DatagramSession {
    pub(crate) link: Link,
    pub(crate) address: SocketAddr,
    /// Whether it is in the core's list of those that have something to say again.
    pub(crate) is_timed: bool,
}

/// Carrier of a connection.
pub(crate) enum ConnectionIo<S> {
    Stream(S),
    Encrypted(Box<EncryptedStream<S>>),
    Datagrams(Box<DatagramSession>),
}

/// A core's datagrams on their way out.
pub(crate) struct OutboundDatagrams {
    pub(crate) socket: UdpSocket,
    pub(crate) outgoing: Outgoing,
    /// Datagrams and bytes that the socket took since they were counted last, and calls to the kernel.
    pub(crate) sent: (usize, usize, usize),
}

impl OutboundDatagrams {
    /// Puts a datagram to those that wait; sends them if there is no room.
    pub(crate) fn push(&mut self, datagram: &[u8], to: &SocketAddr) {
        if self.outgoing.is_full() {
            self.send();
        }
        self.outgoing.push(datagram, to);
    }

    /// Sends what waits.
    pub(crate) fn send(&mut self) {
        if !self.outgoing.is_empty() {
            let (count, bytes) = self.outgoing.send(self.socket.as_fd());
            self.sent = (self.sent.0 + count, self.sent.1 + bytes, self.sent.2 + 1);
        }
    }
}

impl DatagramSession {
    /// Takes frames that the session says and sends them, with all that is due besides.
    pub(crate) fn send(&mut self, frames: &[u8], now: Time, out: &mut OutboundDatagrams) -> usize {
        let DatagramSession { link, address, .. } = self;
        let mut push = |datagram: &[u8]| out.push(datagram, address);
        let taken = link.send(now, frames, &mut push);
        link.flush(now, &mut push);
        taken
    }
}

impl<S: Stream> ConnectionIo<S> {
    pub(crate) fn datagram_session(&mut self) -> Option<&mut DatagramSession> {
        match self {
            ConnectionIo::Stream(_) | ConnectionIo::Encrypted(_) => None,
            ConnectionIo::Datagrams(far) => Some(far),
        }
    }

    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self, ConnectionIo::Datagrams(_))
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) {
        match self {
            ConnectionIo::Stream(stream) => stream.deregister(registry),
            ConnectionIo::Encrypted(stream) => stream.socket.deregister(registry),
            ConnectionIo::Datagrams(_) => {}
        }
    }

    /// Reads a stream. What comes in datagrams has been put where the next requests come from.
    pub(crate) fn receive(&mut self, receiver: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome> {
        match self {
            ConnectionIo::Stream(stream) => stream.receive(receiver, into),
            ConnectionIo::Encrypted(stream) => stream.receive(receiver, into),
            ConnectionIo::Datagrams(_) => Ok(ReadOutcome::NOTHING),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], now: Time, out: &mut Option<OutboundDatagrams>) -> io::Result<usize> {
        match (self, out) {
            (ConnectionIo::Stream(stream), _) => stream.send(bytes),
            (ConnectionIo::Encrypted(stream), _) => stream.send(bytes),
            (ConnectionIo::Datagrams(far), Some(out)) => Ok(far.send(bytes, now, out)),
            (ConnectionIo::Datagrams(_), None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Whether the next read is of the socket, if it has one.
    pub(crate) fn reads_socket(&self) -> bool {
        match self {
            ConnectionIo::Stream(_) => true,
            ConnectionIo::Encrypted(stream) => stream.reads_socket(),
            ConnectionIo::Datagrams(_) => false,
        }
    }

    /// Bytes that the last read took off the network, where these are others than those it gave.
    pub(crate) fn ciphertext_bytes(&self) -> usize {
        match self {
            ConnectionIo::Encrypted(stream) => stream.ciphertext_bytes(),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => 0,
        }
    }

    /// Parts in which bytes came since this was asked last, as far as they cost more than bytes do.
    pub(crate) fn parts(&mut self) -> u32 {
        match self {
            ConnectionIo::Encrypted(stream) => stream.empty_records(),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => 0,
        }
    }

    /// Puts what somebody else has `received` from the socket into `into`.
    pub(crate) fn decode(&mut self, received: ReadOutcome, bytes: &[u8], into: &mut [u8]) -> io::Result<ReadOutcome> {
        match self {
            ConnectionIo::Encrypted(stream) => stream.decrypt(received, bytes, into),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => {
                into[..bytes.len()].copy_from_slice(bytes);
                Ok(received)
            }
        }
    }

    /// Bytes for the socket that say the beginning of `bytes`, if that can be said now.
    pub(crate) fn seal_for_batch<'a>(&'a mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            ConnectionIo::Stream(_) => Some(bytes),
            ConnectionIo::Encrypted(stream) => stream.seal_for_batch(bytes),
            ConnectionIo::Datagrams(_) => None,
        }
    }

    /// So many bytes for the socket have left; how many of the connection's have, by that.
    pub(crate) fn sent(&mut self, count: usize) -> usize {
        match self {
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => count,
            ConnectionIo::Encrypted(stream) => stream.sent(count),
        }
    }

    /// The socket, if there is one of the connection's own: then several may be read or written in one system call.
    pub(crate) fn raw(&self) -> Option<BorrowedFd<'_>> {
        match self {
            ConnectionIo::Stream(stream) => stream.raw(),
            ConnectionIo::Encrypted(stream) => stream.socket.raw(),
            ConnectionIo::Datagrams(_) => None,
        }
    }

    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        match self {
            ConnectionIo::Stream(stream) => stream.shutdown(),
            ConnectionIo::Encrypted(stream) => stream.shutdown(),
            // Nothing is left in a queue of the kernel's that closing would throw away.
            ConnectionIo::Datagrams(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        match self {
            ConnectionIo::Stream(stream) => stream.is_broken(),
            ConnectionIo::Encrypted(stream) => stream.socket.is_broken(),
            ConnectionIo::Datagrams(_) => false,
        }
    }

    pub(crate) fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake {
        match self {
            ConnectionIo::Stream(stream) => stream.discard(discarded, most),
            ConnectionIo::Encrypted(stream) => stream.discard(discarded, most),
            ConnectionIo::Datagrams(_) => ClosingHandshake::Pending,
        }
    }
}
