//! Listeners of TCP and Unix. Does not contain what becomes of a connection.

use super::address::{LocalAddress, UNIX};
use super::socket::{Detached, Socket};
use super::socket_file::SocketFile;
use crate::error::ProxyError;
use leeward_observe::with_host;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Connections that wait to be accepted; the kernel bounds it (`net.core.somaxconn`). The 128 of
/// the standard library overflow in a burst, and each client that meets that waits for a second.
const BACKLOG: i32 = 4_096;

/// A listener that no thread's event loop has taken yet.
#[derive(Debug)]
pub struct BoundListener(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    /// The file goes with the listener; `None`: it is somebody else's.
    Unix(Option<SocketFile>, UnixListener),
}

/// A listener of the thread that accepts.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix {
        /// It goes first, so that nobody connects to a socket without a listener.
        file: Option<SocketFile>,
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
    pub fn bind(text: &str) -> Result<Self, ProxyError> {
        let listen = || -> io::Result<Self> {
            let bound = match text.strip_prefix(UNIX) {
                Some(path) => {
                    let (file, listener) = SocketFile::listen(Path::new(path))?;
                    Bound::Unix(Some(file), listener)
                }
                None => Bound::Tcp(std::net::TcpListener::bind(&*with_host(text))?),
            };
            let listener = BoundListener(bound);
            rustix::net::listen(&listener, BACKLOG)?;
            Ok(listener)
        };
        listen().map_err(|source| ProxyError::Listen { address: text.chars().take(100).collect(), source })
    }

    /// Takes over the file of a Unix socket that another process has bound and no longer serves: it
    /// goes with this listener.
    pub fn own_file(&mut self) {
        if let Bound::Unix(file, listener) = &mut self.0
            && let Ok(address) = listener.local_addr()
            && let Some(path) = address.as_pathname()
        {
            *file = Some(SocketFile::of(path));
        }
    }

    /// Leaves the file of a Unix socket to a process that serves it from now on.
    pub(crate) fn keep_file(&mut self) {
        if let Bound::Unix(Some(file), _) = &mut self.0 {
            file.keep();
        }
    }

    /// The same socket again, to be handed to another process.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(BoundListener(match &self.0 {
            Bound::Tcp(listener) => Bound::Tcp(listener.try_clone()?),
            Bound::Unix(_, listener) => Bound::Unix(None, listener.try_clone()?),
        }))
    }

    /// Whether it listens on this address; port 0 is any port.
    pub fn is_at(&self, text: &str) -> bool {
        match (self.address(), text.strip_prefix(UNIX)) {
            (Ok(LocalAddress::Unix(own)), Some(path)) => own == Path::new(path),
            (Ok(LocalAddress::Tcp(own)), None) => {
                let is_own = |of: SocketAddr| of.ip() == own.ip() && (of.port() == own.port() || of.port() == 0);
                with_host(text).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(is_own))
            }
            _ => false,
        }
    }

    /// The address that it has.
    ///
    /// # Errors
    /// The socket has none that is known here.
    pub fn address(&self) -> io::Result<LocalAddress> {
        match &self.0 {
            Bound::Tcp(listener) => listener.local_addr().map(LocalAddress::Tcp),
            Bound::Unix(_, listener) => {
                let address = listener.local_addr()?;
                Ok(LocalAddress::Unix(address.as_pathname().unwrap_or(Path::new("")).into()))
            }
        }
    }

    /// A connection that waits in its queue, and its client's address.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn accept_now(&self) -> io::Result<HandedOver> {
        match &self.0 {
            Bound::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Detached::Tcp(stream), Some(peer)))
            }
            Bound::Unix(_, listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Detached::Unix(stream), None))
            }
        }
    }

    /// Gives it to the event loop of this thread.
    pub(crate) fn attach(self) -> io::Result<Listener> {
        Ok(match self.0 {
            Bound::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Listener::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            Bound::Unix(file, listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                Listener::Unix { file, listener }
            }
        })
    }
}

impl From<std::net::TcpListener> for BoundListener {
    fn from(listener: std::net::TcpListener) -> Self {
        BoundListener(Bound::Tcp(listener))
    }
}

impl From<UnixListener> for BoundListener {
    fn from(listener: UnixListener) -> Self {
        BoundListener(Bound::Unix(None, listener))
    }
}

impl AsFd for BoundListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix(_, listener) => listener.as_fd(),
        }
    }
}

impl Listener {
    /// Takes it from this thread's event loop.
    pub(crate) fn detach(self) -> io::Result<BoundListener> {
        Ok(BoundListener(match self {
            Listener::Tcp(listener) => Bound::Tcp(listener.into_std()?),
            Listener::Unix { file, listener } => Bound::Unix(file, listener.into_std()?),
        }))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_address() {
        let listener = BoundListener::bind("127.0.0.1:0").unwrap();
        let port = listener.address().unwrap().tcp().unwrap().port();
        for same in [format!("127.0.0.1:{port}"), "127.0.0.1:0".into()] {
            assert!(listener.is_at(&same), "{same}");
        }
        let other = [format!(":{port}"), format!("[::1]:{port}"), format!("127.0.0.1:{}", port ^ 1), "x".into()];
        for other in other.iter().map(String::as_str).chain(["unix:/x"]) {
            assert!(!listener.is_at(other), "{other}");
        }
        assert!(listener.try_clone().unwrap().is_at("127.0.0.1:0"));
        assert!(BoundListener::bind(":0").unwrap().is_at(":0"));
        assert!(BoundListener::bind("nowhere").is_err());
    }
}
