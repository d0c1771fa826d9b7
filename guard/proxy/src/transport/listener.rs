//! Listeners of TCP and Unix. Does not contain what becomes of a connection.

use super::address::{LocalAddress, UNIX};
use super::socket::{Detached, Socket};
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A listener that no thread's event loop has taken yet.
#[derive(Debug)]
pub(crate) enum BoundListener {
    Tcp(std::net::TcpListener),
    Unix(UnixListener),
}

/// A listener of the thread that accepts.
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl BoundListener {
    /// Binds to `:8080`, `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// The address is in use, is not local, or is malformed.
    pub(crate) fn bind(text: &str) -> io::Result<Self> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return Ok(BoundListener::Unix(UnixListener::bind(Path::new(path))?));
        }
        // `:8080` means all addresses of this machine.
        let address = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.into() };
        Ok(BoundListener::Tcp(std::net::TcpListener::bind(address)?))
    }

    /// The address that it has.
    pub(crate) fn address(&self) -> io::Result<LocalAddress> {
        match self {
            BoundListener::Tcp(listener) => listener.local_addr().map(LocalAddress::Tcp),
            BoundListener::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(LocalAddress::Unix(address.as_pathname().unwrap_or(Path::new("")).into()))
            }
        }
    }

    /// Gives it to the event loop of this thread.
    pub(crate) fn into_listener(self) -> io::Result<Listener> {
        Ok(match self {
            BoundListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Listener::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            BoundListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Listener::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
        })
    }
}

impl Listener {
    /// The next connection and its client's address, which a client of a Unix socket does not have.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Socket::Tcp(stream), Some(peer.ip().to_canonical())))
            }
            Listener::Unix(listener) => Ok((Socket::Unix(listener.accept().await?.0), None)),
        }
    }
}

/// A connection that another thread serves.
pub(crate) type HandedOver = (Detached, Option<IpAddr>);
