//! The socket of a link: a TCP connection, with TLS or without, or a session over datagrams.

use leeward_core::units::{Nanos, Time};
#[cfg(feature = "tls")]
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
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    Datagrams(Box<DatagramStream>),
}

impl Socket {
    /// Connects, and waits for that where there is something to wait for.
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

    /// As [`Socket::open`], with TLS: its handshake goes on as bytes come.
    #[cfg(feature = "tls")]
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

    /// Whether there are bytes to read that the poller does not tell of.
    pub(crate) fn holds_bytes(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.holds_plaintext(),
            _ => false,
        }
    }

    /// Whether bytes wait for room that the owner does not know of.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.wants_send(),
            _ => false,
        }
    }

    pub(crate) fn read(&mut self, now: impl Fn() -> Time, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.read(into),
            Socket::Datagrams(far) => far.read(now, into),
        }
    }

    /// Whether it is worth reading again after so many bytes into so much room: the poller tells of what is left in any case.
    pub(crate) fn may_have_more(&self, count: usize, room: usize, in_flight: u32) -> bool {
        match self {
            Socket::Tcp(_) => count == room,
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => count == room || stream.holds_plaintext(),
            Socket::Datagrams(_) => in_flight > 0,
        }
    }

    pub(crate) fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.write(bytes),
            Socket::Datagrams(far) => far.write(now, bytes),
        }
    }

    /// Ends a turn of writing.
    pub(crate) fn flush(&mut self) {
        match self {
            Socket::Tcp(_) => {}
            // Words of its own that found no room before.
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => _ = stream.flush(),
            Socket::Datagrams(far) => far.finish(),
        }
    }

    /// Does what is due. Whether the server is there.
    pub(crate) fn on_timer(&mut self, now: Time) -> bool {
        let Socket::Datagrams(far) = self else { return true };
        far.on_timer(now);
        far.lost().is_none()
    }

    /// When [`Socket::on_timer`] has something to do.
    pub(crate) fn next_timeout(&self) -> Time {
        match self {
            Socket::Tcp(_) => Time::NEVER,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => Time::NEVER,
            Socket::Datagrams(far) => far.next_timeout(),
        }
    }

    /// Calls that the transport lets be under way; `None` where it knows no bound.
    pub(crate) fn congestion_window(&self) -> Option<u32> {
        match self {
            Socket::Tcp(_) => None,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => None,
            Socket::Datagrams(far) => Some(far.congestion_window()),
        }
    }

    /// Datagrams that were sent again, and those that came again.
    pub(crate) fn counts(&self) -> DatagramCounts {
        match self {
            Socket::Tcp(_) => DatagramCounts::default(),
            #[cfg(feature = "tls")]
            Socket::Tls(_) => DatagramCounts::default(),
            Socket::Datagrams(far) => far.counts(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.socket().as_fd(),
            Socket::Datagrams(far) => far.as_fd(),
        }
    }
}
