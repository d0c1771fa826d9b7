//! A service that is ready to be served: what a [`Case`](crate::case::Case) makes of its arguments, and of the requests that
//! a scenario names. Never here: which services there are.

use leeward_engine::{Config, Source};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Server, ServerError};
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A service whose data is ready: servers of it can be started.
pub trait Backend: Send + Sync {
    /// Starts a server of it. Each start meets the data as they were in the beginning, as far as requests change them.
    ///
    /// # Errors
    /// See [`ServerError`].
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError>;

    /// Words about servers that it asks and are not the right ones, and warnings about others, since this was asked last.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The protocol of the second port that [`Backend::open_port`] would open, if the arguments ask for one.
    fn second_port(&self) -> Option<&'static str> {
        None
    }

    /// Opens a second port with another protocol on the same data, if the arguments ask for one: with the settings of the
    /// server beside it, on as many cores again.
    ///
    /// # Errors
    /// See [`ServerError`].
    fn open_port(&self, _: &Config) -> Result<Option<Box<dyn Port>>, ServerError> {
        Ok(None)
    }
}

/// A second port that is open.
pub trait Port {
    /// The protocol's name, such as `memcached`.
    fn name(&self) -> &'static str;

    /// Its address.
    fn address(&self) -> SocketAddr;

    /// The port for those who watch it; `None` where no watch is kept.
    fn source(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// Whether a core could not go on: [`Port::stop`] then says why.
    fn has_failed(&self) -> bool;

    /// Takes no more requests, sends the answers that it owes, and ends.
    ///
    /// # Errors
    /// A core ended before its time.
    fn stop(self: Box<Self>) -> io::Result<PortCounts>;
}

/// Requests of a second port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Received.
    pub received: u64,
    /// Answered.
    pub completed: u64,
    /// Told that the server is busy.
    pub busy: u64,
}

/// The resource that requests of a service wait for, under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Cores. Server and clients get CPUs of their own: sharing one, each would be measured waiting for the other.
    Cores,
    /// Locks. The server may have all CPUs: what the clients take is little.
    Locks,
    /// Threads of a tier. The server gets CPUs of its own; its leaves, which wait, share the clients'.
    Threads,
}

/// Both ends of a service in this process: a backend, to be served again and again, and what its clients ask.
#[derive(Clone)]
pub struct InProcessService {
    /// The server's end.
    pub backend: Arc<dyn Backend>,
    /// The clients' end; `None` if requests carry the service times that are drawn.
    pub generator: Option<Arc<dyn RequestGenerator>>,
    /// Description of the service in a sentence, if its name does not say.
    pub description: Option<String>,
    /// Resource that requests wait for.
    pub bottleneck: Bottleneck,
}

impl Debug for InProcessService {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let InProcessService { backend: _, generator: ask, description: words, bottleneck } = self;
        let mut fields = f.debug_struct("Served");
        fields.field("ask", ask).field("words", words).field("bottleneck", bottleneck).finish_non_exhaustive()
    }
}

impl InProcessService {
    /// Starts a server of it.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        self.backend.start(builder, address)
    }

    /// Whether how long requests take is measured; otherwise it is drawn, and the simulator knows it.
    pub fn is_measured(&self) -> bool {
        self.generator.is_some()
    }

    /// Whether requests wait for locks rather than for cores.
    pub fn is_lock_bound(&self) -> bool {
        self.bottleneck == Bottleneck::Locks
    }
}
