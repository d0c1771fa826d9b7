//! The socket of a link: a TCP connection, with TLS or without, or a session over datagrams.

use leeward_core::units::{Nanos, Time};
use leeward_rpc::client::TlsStream;
use leeward_rpc::client::{DatagramCounts, DatagramSize, DatagramStream, Transport};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A transport of frames.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Datagrams(Box<DatagramStream>),
}

impl Socket {
    /// Connects, and waits for the connection if the transport has one.
    pub(crate) fn open(
        number: u32,
        (transport, address, size): (Transport, SocketAddr, DatagramSize),
        timeout: Nanos,
        now: Time,
    ) -> io::Result<Self> {
        if transport == Transport::Udp {
            let nonce = RandomState::new().hash_one(number);
            return Ok(Socket::Datagrams(Box::new(DatagramStream::connect(address, nonce, size, now)?)));
        }
        let socket = TcpStream::connect_timeout(&address, Duration::from_nanos(timeout.0.max(1)))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Socket::Tcp(socket))
    }

    /// As [`Socket::open`], with TLS: the handshake continues as bytes arrive.
    pub(crate) fn open_tls(
        number: u32,
        to: (Transport, SocketAddr, DatagramSize),
        timeout: Nanos,
        now: Time,
        tls: Option<&(leeward_rpc::tls::ClientTls, leeward_rpc::tls::ServerName)>,
    ) -> io::Result<Self> {
        match (Socket::open(number, to, timeout, now)?, tls) {
            (Socket::Tcp(socket), Some((tls, name))) => {
                let session = tls.connect(name).map_err(io::Error::other)?;
                let mut stream = Box::new(TlsStream::new(socket, session));
                stream.flush()?;
                Ok(Socket::Tls(stream))
            }
            (socket, _) => Ok(socket),
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        !matches!(self, Socket::Datagrams(_))
    }

    /// Whether there are bytes to read that the poller does not report.
    pub(crate) fn holds_bytes(&self) -> bool {
        match self {
            Socket::Tls(stream) => stream.holds_plaintext(),
            _ => false,
        }
    }

    /// Whether buffered bytes wait for a writable socket.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Socket::Tls(stream) => stream.wants_send(),
            _ => false,
        }
    }

    pub(crate) fn read(&mut self, now: impl Fn() -> Time, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(into),
            Socket::Tls(stream) => stream.read(into),
            Socket::Datagrams(datagrams) => datagrams.read(now, into),
        }
    }

    /// Whether another read is worthwhile after `count` bytes into a buffer of `capacity`. The
    /// poller reports remaining bytes in any case.
    pub(crate) fn may_have_more(&self, count: usize, capacity: usize, in_flight: u32) -> bool {
        match self {
            Socket::Tcp(_) => count == capacity,
            Socket::Tls(stream) => count == capacity || stream.holds_plaintext(),
            Socket::Datagrams(_) => in_flight > 0,
        }
    }

    pub(crate) fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Tls(stream) => stream.write(bytes),
            Socket::Datagrams(datagrams) => datagrams.write(now, bytes),
        }
    }

    /// Ends a batch of writes.
    pub(crate) fn flush(&mut self) {
        match self {
            Socket::Tcp(_) => {}
            // Sends TLS records that the socket did not take before.
            Socket::Tls(stream) => _ = stream.flush(),
            Socket::Datagrams(datagrams) => datagrams.finish(),
        }
    }

    /// Does all due work. Returns whether the server is still there.
    pub(crate) fn on_timer(&mut self, now: Time) -> bool {
        let Socket::Datagrams(datagrams) = self else { return true };
        datagrams.on_timer(now);
        datagrams.lost().is_none()
    }

    /// Reason for the end of a session over datagrams, if it has ended.
    pub(crate) fn lost(&self) -> Option<String> {
        let Socket::Datagrams(datagrams) = self else { return None };
        datagrams.lost().map(|error| error.to_string())
    }

    /// Time at which [`Socket::on_timer`] has work to do.
    pub(crate) fn next_timeout(&self) -> Time {
        match self {
            Socket::Tcp(_) => Time::NEVER,
            Socket::Tls(_) => Time::NEVER,
            Socket::Datagrams(datagrams) => datagrams.next_timeout(),
        }
    }

    /// Calls that the transport permits to be in flight; `None` without a limit.
    pub(crate) fn congestion_window(&self) -> Option<u32> {
        match self {
            Socket::Tcp(_) => None,
            Socket::Tls(_) => None,
            Socket::Datagrams(datagrams) => Some(datagrams.congestion_window()),
        }
    }

    /// Counters of retransmitted and duplicate datagrams.
    pub(crate) fn counts(&self) -> DatagramCounts {
        match self {
            Socket::Tcp(_) => DatagramCounts::default(),
            Socket::Tls(_) => DatagramCounts::default(),
            Socket::Datagrams(datagrams) => datagrams.counts(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Tls(stream) => stream.socket().as_fd(),
            Socket::Datagrams(datagrams) => datagrams.as_fd(),
        }
    }
}
