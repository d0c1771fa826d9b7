//! Taking new connections and dealing them out to the cores.

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections that are taken at one look at the network: each takes as long as a few requests.
const BATCH: usize = 2;

/// Listens with room for a crowd that connects at once, on the first of the address's meanings that can be had.
///
/// # Errors
/// The last meaning's, or that there is none.
pub(crate) fn listen(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for address in address.to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that listens already, on its way to the server that is to have it: from systemd, for one. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct InheritedListener(Arc<Mutex<Option<std::net::TcpListener>>>);

impl InheritedListener {
    /// Of this socket.
    pub fn new(listener: std::net::TcpListener) -> Self {
        InheritedListener(Arc::new(Mutex::new(Some(listener))))
    }

    /// Takes the socket, if nobody has.
    pub(crate) fn take(&self) -> io::Result<Option<TcpListener>> {
        let Some(listener) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(None) };
        listener.set_nonblocking(true)?;
        Ok(Some(TcpListener::from_std(listener)))
    }
}

/// A core's listener, if it is the one that has it.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Option<TcpListener>,
    next_core: usize,
    has_more: bool,
}

impl Acceptor {
    /// Has new connections told under `token`.
    ///
    /// # Errors
    /// The registry's.
    pub(crate) fn new(mut listener: Option<TcpListener>, registry: &Registry, token: Token) -> io::Result<Self> {
        if let Some(listener) = &mut listener {
            registry.register(listener, token, Interest::READABLE)?;
        }
        Ok(Acceptor { listener, next_core: 0, has_more: false })
    }

    /// Whether more connections may wait than were taken: the poll does not say it again.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Leaves those that wait until somebody asks again.
    pub(crate) fn wait(&mut self) {
        self.has_more = false;
    }

    /// Takes some of those that wait, each for one of so many cores in turn, as long as there `may` be more of them. What is
    /// not taken waits in the listener's bounded queue.
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
                // It has gone already: no reason to let the next one wait.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Nothing there; or out of descriptors, and then whoever asks again finds out.
                Err(_) => return taken,
            }
        }
        self.has_more = true;
        taken
    }

    /// Takes no more.
    pub(crate) fn stop(&mut self, registry: &Registry) {
        if let Some(mut listener) = self.listener.take() {
            let _ = registry.deregister(&mut listener);
        }
    }
}
