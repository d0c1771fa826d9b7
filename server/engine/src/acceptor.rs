//! Listening sockets: accepting new connections and distributing them among the cores.

use leeward_observe::with_host;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{self, Backlog};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections accepted per poll; accepting one takes as long as a few requests.
const BATCH: usize = 2;

/// Binds a listener to the first resolved address that can be bound. As many connections as the
/// system allows wait to be accepted.
///
/// # Errors
/// The error of the last address tried, or that the name resolves to no address.
pub(crate) fn listen(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for address in with_host(address).to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => {
                // mio's 128 overflow in a stall. Who meets that comes again after seconds.
                let _ = socket::listen(&listener, Backlog::MAXALLOWABLE);
                return Ok(listener);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that listens already, for example one from systemd, to be handed to a server. Clones
/// share the socket.
#[derive(Clone, Debug, Default)]
pub struct InheritedListener(Arc<Mutex<Option<std::net::TcpListener>>>);

impl InheritedListener {
    /// Wraps a listening socket.
    pub fn new(listener: std::net::TcpListener) -> Self {
        InheritedListener(Arc::new(Mutex::new(Some(listener))))
    }

    /// Takes the socket; `None` if another server has taken it.
    pub(crate) fn take(&self) -> io::Result<Option<TcpListener>> {
        let Some(listener) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(None) };
        listener.set_nonblocking(true)?;
        Ok(Some(TcpListener::from_std(listener)))
    }
}

/// A core's listener. Only one core has a listener.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Option<TcpListener>,
    next_core: usize,
    has_more: bool,
}

impl Acceptor {
    /// Registers the listener, so that the poll reports new connections under `token`.
    ///
    /// # Errors
    /// Registration with the poll failed.
    pub(crate) fn new(mut listener: Option<TcpListener>, registry: &Registry, token: Token) -> io::Result<Self> {
        if let Some(listener) = &mut listener {
            registry.register(listener, token, Interest::READABLE)?;
        }
        Ok(Acceptor { listener, next_core: 0, has_more: false })
    }

    /// Returns whether more connections may be pending. The poll does not report these again.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Leaves pending connections in the listener's queue until the next scan or poll event.
    pub(crate) fn wait(&mut self) {
        self.has_more = false;
    }

    /// Accepts up to [`BATCH`] pending connections if `may` allows it, each for the next of `cores`
    /// in turn. Other connections stay in the listener's bounded queue.
    pub(crate) fn accept(&mut self, cores: usize, may: bool) -> Vec<(usize, TcpStream)> {
        let mut taken = Vec::new();
        self.has_more = false;
        let Some(listener) = self.listener.as_ref().filter(|_| may) else { return taken };
        for _ in 0..BATCH {
            match listener.accept() {
                Ok((stream, _)) => {
                    taken.push((self.next_core, stream));
                    self.next_core = (self.next_core + 1) % cores;
                }
                // The client has gone already. Go on with the next connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Nothing is pending, or descriptors are exhausted. The next call finds out.
                Err(_) => return taken,
            }
        }
        self.has_more = true;
        taken
    }

    /// Stops accepting.
    pub(crate) fn stop(&mut self, registry: &Registry) {
        if let Some(mut listener) = self.listener.take() {
            let _ = registry.deregister(&mut listener);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::TcpStream as Client;
    use std::time::Duration;

    /// A client whose connection is dropped tries again after a second.
    #[test]
    fn connections_wait_in_a_stall() {
        let listener = listen("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| Client::connect_timeout(&address, Duration::from_millis(700)).unwrap();
        let waiting: Vec<Client> = (0..200).map(connect).collect();
        assert_eq!(waiting.len(), 200);
    }
}
