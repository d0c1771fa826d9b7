//! Means by which a connection's bytes travel: a stream of its own, encrypted or not, or the core's datagrams.

use crate::batch::messages::Outgoing;
use crate::encryption::Encrypted;
use crate::farewell::Farewell;
use crate::receive::{Received, Receiver};
use crate::stream::Stream;
use leeward_core::units::Time;
use leeward_datagram::server::Link;
use mio::Registry;
use mio::net::UdpSocket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// A session whose frames come and go in datagrams.
pub(crate) struct Far {
    pub(crate) link: Link,
    pub(crate) address: SocketAddr,
    /// Whether it is in the core's list of those that have something to say again.
    pub(crate) is_timed: bool,
}

/// Carrier of a connection.
pub(crate) enum Carrier<S> {
    Stream(S),
    Encrypted(Box<Encrypted<S>>),
    Datagrams(Box<Far>),
}

/// A core's datagrams on their way out.
pub(crate) struct Outbound {
    pub(crate) socket: UdpSocket,
    pub(crate) outgoing: Outgoing,
    /// Datagrams and bytes that the socket took since they were counted last, and calls to the kernel.
    pub(crate) sent: (usize, usize, usize),
}

impl Outbound {
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

impl Far {
    /// Takes frames that the session says and sends them, with all that is due besides.
    pub(crate) fn send(&mut self, frames: &[u8], now: Time, out: &mut Outbound) -> usize {
        let Far { link, address, .. } = self;
        let mut push = |datagram: &[u8]| out.push(datagram, address);
        let taken = link.send(now, frames, &mut push);
        link.finish(now, &mut push);
        taken
    }
}

impl<S: Stream> Carrier<S> {
    pub(crate) fn far(&mut self) -> Option<&mut Far> {
        match self {
            Carrier::Stream(_) | Carrier::Encrypted(_) => None,
            Carrier::Datagrams(far) => Some(far),
        }
    }

    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Carrier::Datagrams(_))
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) {
        match self {
            Carrier::Stream(stream) => stream.deregister(registry),
            Carrier::Encrypted(stream) => stream.socket.deregister(registry),
            Carrier::Datagrams(_) => {}
        }
    }

    /// Reads a stream. What comes in datagrams has been put where the next requests come from.
    pub(crate) fn receive(&mut self, receiver: &mut Receiver, into: &mut [u8]) -> io::Result<Received> {
        match self {
            Carrier::Stream(stream) => stream.receive(receiver, into),
            Carrier::Encrypted(stream) => stream.receive(receiver, into),
            Carrier::Datagrams(_) => Ok(Received::NOTHING),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], now: Time, out: &mut Option<Outbound>) -> io::Result<usize> {
        match (self, out) {
            (Carrier::Stream(stream), _) => stream.send(bytes),
            (Carrier::Encrypted(stream), _) => stream.send(bytes),
            (Carrier::Datagrams(far), Some(out)) => Ok(far.send(bytes, now, out)),
            (Carrier::Datagrams(_), None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Whether the next read is of the socket, if it has one.
    pub(crate) fn reads_its_socket(&self) -> bool {
        match self {
            Carrier::Stream(_) => true,
            Carrier::Encrypted(stream) => stream.reads_its_socket(),
            Carrier::Datagrams(_) => false,
        }
    }

    /// Bytes that the last read took off the network, where these are others than those it gave.
    pub(crate) fn came(&self) -> usize {
        match self {
            Carrier::Encrypted(stream) => stream.came(),
            Carrier::Stream(_) | Carrier::Datagrams(_) => 0,
        }
    }

    /// Parts in which bytes came since this was asked last, as far as they cost more than bytes do.
    pub(crate) fn parts(&mut self) -> u32 {
        match self {
            Carrier::Encrypted(stream) => stream.empty_records(),
            Carrier::Stream(_) | Carrier::Datagrams(_) => 0,
        }
    }

    /// Puts what somebody else has `received` from the socket into `into`.
    pub(crate) fn take_in(&mut self, received: Received, bytes: &[u8], into: &mut [u8]) -> io::Result<Received> {
        match self {
            Carrier::Encrypted(stream) => stream.decrypt(received, bytes, into),
            Carrier::Stream(_) | Carrier::Datagrams(_) => {
                into[..bytes.len()].copy_from_slice(bytes);
                Ok(received)
            }
        }
    }

    /// Bytes for the socket that say the beginning of `bytes`, if that can be said now.
    pub(crate) fn apart<'a>(&'a mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Carrier::Stream(_) => Some(bytes),
            Carrier::Encrypted(stream) => stream.seal_apart(bytes),
            Carrier::Datagrams(_) => None,
        }
    }

    /// So many bytes for the socket have left; how many of the connection's have, by that.
    pub(crate) fn sent(&mut self, count: usize) -> usize {
        match self {
            Carrier::Stream(_) | Carrier::Datagrams(_) => count,
            Carrier::Encrypted(stream) => stream.sent(count),
        }
    }

    /// The socket, if there is one of the connection's own: then several may be read or written in one system call.
    pub(crate) fn raw(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Carrier::Stream(stream) => stream.raw(),
            Carrier::Encrypted(stream) => stream.socket.raw(),
            Carrier::Datagrams(_) => None,
        }
    }

    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Carrier::Stream(stream) => stream.shutdown(),
            Carrier::Encrypted(stream) => stream.shutdown(),
            // Nothing is left in a queue of the kernel's that closing would throw away.
            Carrier::Datagrams(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Carrier::Stream(stream) => stream.is_broken(),
            Carrier::Encrypted(stream) => stream.socket.is_broken(),
            Carrier::Datagrams(_) => false,
        }
    }

    pub(crate) fn discard(&mut self, discarded: &mut usize, most: usize) -> Farewell {
        match self {
            Carrier::Stream(stream) => stream.discard(discarded, most),
            Carrier::Encrypted(stream) => stream.discard(discarded, most),
            Carrier::Datagrams(_) => Farewell::More,
        }
    }
}
