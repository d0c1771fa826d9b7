//! The socket of a life: a TCP connection, with TLS or without, or a session over datagrams. Never here: what its bytes mean.

use super::socket_connection::ConnectionFailure;
use crate::client::datagrams::DatagramStream;
#[cfg(feature = "tls")]
use crate::client::tls::TlsStream;
use leeward_core::units::Time;
use leeward_datagram::DatagramSize;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// A transport of frames.
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    Datagrams(Box<DatagramStream>),
}

impl Socket {
    /// Begins to connect; with a nonce and a size, by datagrams.
    pub(super) fn open(address: SocketAddr, datagrams: Option<(u64, DatagramSize)>, now: Time) -> io::Result<Self> {
        if let Some((nonce, size)) = datagrams {
            return Ok(Socket::Datagrams(Box::new(DatagramStream::connect(address, nonce, size, now)?)));
        }
        Ok(Socket::Tcp(connect(address)?))
    }

    /// Begins to connect with TLS.
    #[cfg(feature = "tls")]
    pub(super) fn open_tls(address: SocketAddr, session: leeward_tls::Session) -> io::Result<Self> {
        Ok(Socket::Tls(Box::new(TlsStream::new(connect(address)?, session))))
    }

    /// Has readiness told under `token`, until it is dropped.
    pub(super) fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => registry.register(socket, token, interest),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => registry.register(stream.socket_mut(), token, interest),
            Socket::Datagrams(far) => registry.register(&mut SourceFd(&far.as_raw_fd()), token, interest),
        }
    }

    /// Whether a read that does not fill its room has read everything.
    pub(super) fn drains_on_short_read(&self) -> bool {
        matches!(self, Socket::Tcp(_))
    }

    /// Reads what there is, or one frame of it.
    pub(super) fn read(&mut self, clock: impl Fn() -> Time, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.read(into),
            Socket::Datagrams(far) => far.read(clock, into),
        }
    }

    pub(super) fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.write(bytes),
            Socket::Datagrams(far) => far.write(now, bytes),
        }
    }

    /// Ends a turn of writing.
    pub(super) fn finish(&mut self) {
        match self {
            Socket::Tcp(_) => {}
            // Words of its own that found no room before; what finds none now is told of by the poll.
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => _ = stream.flush(),
            Socket::Datagrams(far) => far.finish(),
        }
    }

    /// When the transport itself has something to do.
    pub(super) fn next_timeout(&self) -> Time {
        match self {
            Socket::Tcp(_) => Time::NEVER,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => Time::NEVER,
            Socket::Datagrams(far) => far.next_timeout(),
        }
    }

    /// Calls that the transport lets be under way; `None` where it knows no bound.
    pub(super) fn transport_limit(&self) -> Option<u32> {
        match self {
            Socket::Tcp(_) => None,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => None,
            Socket::Datagrams(far) => Some(far.congestion_window()),
        }
    }

    /// Whether it was connecting and is connected.
    pub(super) fn is_connected(&self) -> Result<bool, ConnectionFailure> {
        match self {
            Socket::Tcp(socket) => is_connected(socket),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => is_connected(stream.socket()),
            Socket::Datagrams(_) => Ok(true),
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    // A small call must not wait for the acknowledgement of the one before it.
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Whether a socket that was connecting is connected.
fn is_connected(socket: &TcpStream) -> Result<bool, ConnectionFailure> {
    let lost = |error: io::Error| ConnectionFailure::Lost(error.to_string());
    if let Some(error) = socket.take_error().map_err(lost)? {
        return Err(lost(error));
    }
    match socket.peer_addr() {
        // On loopback a port without a listener may be given to the very socket that connects to it, which then talks to
        // itself and keeps the server from coming back.
        Ok(peer) if socket.local_addr().is_ok_and(|local| local == peer) => {
            Err(ConnectionFailure::Lost("nobody listens".into()))
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(lost(error)),
    }
}
