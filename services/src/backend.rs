//! A service that is ready to be served, made from arguments or from a scenario's requests.
//!
//! A [`ServiceDefinition`](crate::definition::ServiceDefinition) builds it. Does not contain the
//! list of services.

use leeward_engine::{Config, Source};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Server, ServerError};
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A service whose data is ready, from which servers can be started.
pub trait Backend: Send + Sync {
    /// Starts a server. Each start sees the initial data, even if earlier requests changed a copy.
    ///
    /// # Errors
    /// See [`ServerError`].
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError>;

    /// Takes messages about wrong leaves, and warnings about others, since the last call.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Protocol of the second port that [`Backend::open_port`] would open; `None` for no second
    /// port.
    fn second_port(&self) -> Option<&'static str> {
        None
    }

    /// Opens a second port with another protocol on the same data, if the arguments ask for one.
    ///
    /// The port has the settings of the first server, and as many cores again.
    ///
    /// # Errors
    /// See [`ServerError`].
    fn open_port(&self, _: &Config) -> Result<Option<Box<dyn Port>>, ServerError> {
        Ok(None)
    }
}

/// An open second port.
pub trait Port {
    /// Returns the protocol's name, such as `memcached`.
    fn name(&self) -> &'static str;

    /// Returns the port's address.
    fn address(&self) -> SocketAddr;

    /// Returns the port's metrics source; `None` for a port without observers.
    fn source(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// Returns whether a core has failed; [`Port::stop`] then returns the reason.
    fn has_failed(&self) -> bool;

    /// Accepts no more requests, sends the pending responses, and ends.
    ///
    /// # Errors
    /// A core ended early.
    fn stop(self: Box<Self>) -> io::Result<PortCounts>;
}

/// Request counts of a second port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Requests received.
    pub received: u64,
    /// Requests answered.
    pub completed: u64,
    /// Requests rejected with the protocol's busy response.
    pub busy: u64,
}

/// The resource for which a service's requests wait under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Cores. Server and clients get separate CPUs; on shared CPUs each would wait for the other.
    Cores,
    /// Locks. The server may use all CPUs, because the clients need little CPU time.
    Locks,
    /// Threads of a tier. The server gets separate CPUs; its waiting leaves share the clients'.
    Threads,
}

/// Server and clients of a service in this process. The backend can be started repeatedly.
#[derive(Clone)]
pub struct InProcessService {
    /// The server's end.
    pub backend: Arc<dyn Backend>,
    /// The clients' end; `None` if requests carry drawn service times.
    pub generator: Option<Arc<dyn RequestGenerator>>,
    /// A one-sentence description, if the service's name does not suffice.
    pub description: Option<String>,
    /// The resource for which requests wait.
    pub bottleneck: Bottleneck,
}

impl Debug for InProcessService {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let InProcessService { backend: _, generator: requests, description: text, bottleneck } = self;
        let mut fields = f.debug_struct("InProcessService");
        fields.field("requests", requests).field("text", text).field("bottleneck", bottleneck).finish_non_exhaustive()
    }
}

impl InProcessService {
    /// Starts a server.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        self.backend.start(builder, address)
    }

    /// Returns whether service times are measured; otherwise they are drawn, and the simulator
    /// knows them.
    pub fn is_measured(&self) -> bool {
        self.generator.is_some()
    }

    /// Returns whether requests wait for locks rather than for cores.
    pub fn is_lock_bound(&self) -> bool {
        self.bottleneck == Bottleneck::Locks
    }
}
