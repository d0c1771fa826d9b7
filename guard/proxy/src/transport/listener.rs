//! Listeners of TCP and Unix. Does not contain what becomes of a connection.

use super::address::{LocalAddress, UNIX};
use super::socket::{Detached, Socket};
use super::socket_file::SocketFile;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Connections that wait to be accepted; the kernel bounds it (`net.core.somaxconn`). The 128 of
/// the standard library overflow in a burst, and each client that meets that waits for a second.
const BACKLOG: i32 = 4_096;

/// A listener that no thread's event loop has taken yet.
#[derive(Debug)]
pub(crate) enum BoundListener {
    Tcp(std::net::TcpListener),
    Unix(SocketFile, UnixListener),
}

/// A listener of the thread that accepts.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix {
        /// It goes first, so that nobody connects to a socket without a listener.
        _file: SocketFile,
        listener: tokio::net::UnixListener,
    },
}

/// A connection that another thread serves, and its client's address.
pub(crate) type HandedOver = (Detached, Option<SocketAddr>);

impl BoundListener {
    /// Binds to `:8080`, `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// The address is in use, is not local, or is malformed.
    pub(crate) fn bind(text: &str) -> io::Result<Self> {
        if let Some(path) = text.strip_prefix(UNIX) {
            let (file, listener) = SocketFile::listen(Path::new(path))?;
            rustix::net::listen(&listener, BACKLOG)?;
            return Ok(BoundListener::Unix(file, listener));
        }
        // `:8080` means all addresses of this machine.
        let address = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.into() };
        let listener = std::net::TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(BoundListener::Tcp(listener))
    }

    /// The address that it has.
    pub(crate) fn address(&self) -> io::Result<LocalAddress> {
        match self {
            BoundListener::Tcp(listener) => listener.local_addr().map(LocalAddress::Tcp),
            BoundListener::Unix(_, listener) => {
                let address = listener.local_addr()?;
                Ok(LocalAddress::Unix(address.as_pathname().unwrap_or(Path::new("")).into()))
            }
        }
    }

    /// Gives it to the event loop of this thread.
    pub(crate) fn attach(self) -> io::Result<Listener> {
        Ok(match self {
            BoundListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Listener::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            BoundListener::Unix(file, listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                Listener::Unix { _file: file, listener }
            }
        })
    }
}

impl Listener {
    /// The next connection and its client's address, which a client of a Unix socket does not have.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream.into(), Some(peer)))
            }
            Listener::Unix { listener, .. } => Ok((listener.accept().await?.0.into(), None)),
        }
    }
}
