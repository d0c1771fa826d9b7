//! Input and output of a connection: a stream, encrypted or not, or the core's datagrams.

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

/// A session whose frames travel in datagrams.
pub(crate) struct DatagramSession {
    pub(crate) link: Link,
    pub(crate) address: SocketAddr,
    /// Whether the core's list of sessions with pending retransmissions has it.
    pub(crate) is_timed: bool,
}

/// Transport of a connection.
pub(crate) enum ConnectionIo<S> {
    Stream(S),
    Encrypted(Box<EncryptedStream<S>>),
    Datagrams(Box<DatagramSession>),
}

/// A core's outgoing datagrams.
pub(crate) struct OutboundDatagrams {
    pub(crate) socket: UdpSocket,
    pub(crate) outgoing: Outgoing,
    /// Datagrams and bytes that the socket took since they were last counted, and system calls.
    pub(crate) sent: (usize, usize, usize),
}

impl OutboundDatagrams {
    /// Adds a datagram. Sends the pending ones first if there is no slot.
    pub(crate) fn push(&mut self, datagram: &[u8], to: &SocketAddr) {
        if self.outgoing.is_full() {
            self.send();
        }
        self.outgoing.push(datagram, to);
    }

    /// Sends the pending datagrams.
    pub(crate) fn send(&mut self) {
        if !self.outgoing.is_empty() {
            let (count, bytes) = self.outgoing.send(self.socket.as_fd());
            self.sent = (self.sent.0 + count, self.sent.1 + bytes, self.sent.2 + 1);
        }
    }
}

impl DatagramSession {
    /// Takes frames of the session and sends them, together with all other datagrams that are due.
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
            ConnectionIo::Datagrams(session) => Some(session),
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

    /// Reads a stream. Datagrams reach the protocol's buffer another way, so a session reads
    /// nothing.
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
            (ConnectionIo::Datagrams(session), Some(out)) => Ok(session.send(bytes, now, out)),
            (ConnectionIo::Datagrams(_), None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns whether the next read is from the socket, if there is one.
    pub(crate) fn reads_socket(&self) -> bool {
        match self {
            ConnectionIo::Stream(_) => true,
            ConnectionIo::Encrypted(stream) => stream.reads_socket(),
            ConnectionIo::Datagrams(_) => false,
        }
    }

    /// Bytes that the last read took off the network, if these differ from the bytes that it
    /// returned.
    pub(crate) fn ciphertext_bytes(&self) -> usize {
        match self {
            ConnectionIo::Encrypted(stream) => stream.ciphertext_bytes(),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => 0,
        }
    }

    /// Records that arrived since the last call and cost more than their bytes do.
    pub(crate) fn parts(&mut self) -> u32 {
        match self {
            ConnectionIo::Encrypted(stream) => stream.empty_records(),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => 0,
        }
    }

    /// Puts bytes that a batch call `received` from the socket into `into`.
    pub(crate) fn decode(&mut self, received: ReadOutcome, bytes: &[u8], into: &mut [u8]) -> io::Result<ReadOutcome> {
        match self {
            ConnectionIo::Encrypted(stream) => stream.decrypt(received, bytes, into),
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => {
                into[..bytes.len()].copy_from_slice(bytes);
                Ok(received)
            }
        }
    }

    /// Returns bytes for the socket that carry the beginning of `bytes`, if these can be sent now.
    pub(crate) fn seal_for_batch<'a>(&'a mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            ConnectionIo::Stream(_) => Some(bytes),
            ConnectionIo::Encrypted(stream) => stream.seal_for_batch(bytes),
            ConnectionIo::Datagrams(_) => None,
        }
    }

    /// Notes that `count` bytes left by the socket. Returns how many of the connection's bytes left
    /// with these.
    pub(crate) fn sent(&mut self, count: usize) -> usize {
        match self {
            ConnectionIo::Stream(_) | ConnectionIo::Datagrams(_) => count,
            ConnectionIo::Encrypted(stream) => stream.sent(count),
        }
    }

    /// The connection's own socket, if it has one. Several such sockets can share one system call.
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
            // The kernel holds no queued bytes that closing would discard.
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
