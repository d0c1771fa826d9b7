//! Socket of a connection: TCP, with or without TLS, or a session over datagrams.
//!
//! Does not contain the meaning of its bytes.

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

/// Transport of frames.
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    Datagrams(Box<DatagramStream>),
}

impl Socket {
    /// Begins to connect; over datagrams if a nonce and a size are given.
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

    /// Registers the socket with the poll under `token`, until the socket is dropped.
    pub(super) fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => registry.register(socket, token, interest),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => registry.register(stream.socket_mut(), token, interest),
            Socket::Datagrams(stream) => registry.register(&mut SourceFd(&stream.as_raw_fd()), token, interest),
        }
    }

    /// Whether a read that does not fill its buffer has read everything.
    pub(super) fn drains_on_short_read(&self) -> bool {
        matches!(self, Socket::Tcp(_))
    }

    /// Reads available bytes, or one frame.
    pub(super) fn read(&mut self, clock: impl Fn() -> Time, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.read(into),
            Socket::Datagrams(stream) => stream.read(clock, into),
        }
    }

    pub(super) fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => stream.write(bytes),
            Socket::Datagrams(stream) => stream.write(now, bytes),
        }
    }

    /// Ends a round of writing.
    pub(super) fn finish(&mut self) {
        match self {
            Socket::Tcp(_) => {}
            // TLS records that found no space before; the poll announces space for the rest.
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => _ = stream.flush(),
            Socket::Datagrams(stream) => stream.finish(),
        }
    }

    /// Time at which the transport itself has work next.
    pub(super) fn next_timeout(&self) -> Time {
        match self {
            Socket::Tcp(_) => Time::NEVER,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => Time::NEVER,
            Socket::Datagrams(stream) => stream.next_timeout(),
        }
    }

    /// Calls that the transport allows in flight; `None` without a limit.
    pub(super) fn transport_limit(&self) -> Option<u32> {
        match self {
            Socket::Tcp(_) => None,
            #[cfg(feature = "tls")]
            Socket::Tls(_) => None,
            Socket::Datagrams(stream) => Some(stream.congestion_window()),
        }
    }

    /// Whether the socket is connected.
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

/// Whether a connecting socket is connected.
fn is_connected(socket: &TcpStream) -> Result<bool, ConnectionFailure> {
    let lost = |error: io::Error| ConnectionFailure::Lost(error.to_string());
    if let Some(error) = socket.take_error().map_err(lost)? {
        return Err(lost(error));
    }
    match socket.peer_addr() {
        // On loopback, the system may give a port without a listener to the very socket that
        // connects to it. The socket then talks to itself and keeps the server from coming back.
        Ok(peer) if socket.local_addr().is_ok_and(|local| local == peer) => {
            Err(ConnectionFailure::Lost("no server listens".into()))
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(lost(error)),
    }
}
