//! Starting a server.

use super::async_handler::AsyncHandler;
use super::executor::{CallExecutor, InlineExecutor, TaskExecutor};
use super::handler::Handler;
use super::protocol::Rpc;
use crate::tier::{self, MidTier, PolicyFactory, Tier, TierError};
use crate::wire::PayloadLimit;
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;
use leeward_engine::statistics::ServiceInfo;
use leeward_engine::{Config, Handle, ServerError};
use leeward_host::RequestCounts;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A server to be.
#[derive(Clone, Debug)]
pub struct Builder {
    port: Config,
    payload: PayloadLimit,
    pub(crate) policy_factory: Option<PolicyFactory>,
}

/// A running server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server(leeward_engine::Server);

impl From<leeward_engine::Server> for Server {
    /// A server that stands around another, such as one that has its leaves with it.
    fn from(server: leeward_engine::Server) -> Self {
        Server(server)
    }
}

impl Server {
    /// A core that spins, no admission control, the papers' objective; every part can be set.
    pub fn builder() -> Builder {
        Builder { port: Config::default(), payload: PayloadLimit::DEFAULT, policy_factory: None }
    }

    /// Takes no more connections and calls, sends the answers that it owes, and ends. Returns what became of all requests.
    ///
    /// # Errors
    /// What made a core end before its time.
    pub fn stop(self) -> io::Result<RequestCounts> {
        self.0.stop()
    }
}

impl Deref for Server {
    type Target = leeward_engine::Server;

    fn deref(&self) -> &leeward_engine::Server {
        &self.0
    }
}

impl Builder {
    leeward_engine::server_settings!();

    pub(crate) fn into_parts(self) -> (Config, PayloadLimit) {
        (self.port, self.payload)
    }

    /// The settings that servers of any protocol have: for a second port beside this server.
    pub fn config(&self) -> &Config {
        &self.port
    }

    /// Has a policy change the threading of the tier that is started, unless its options name one.
    #[must_use]
    pub fn threading_policy(mut self, governed: PolicyFactory) -> Self {
        self.policy_factory = Some(governed);
        self
    }

    /// Describes what is served, for whoever asks for statistics: tiers look whether their leaves are the right ones.
    #[must_use]
    pub fn service_info(mut self, about: ServiceInfo) -> Self {
        self.port.about = about;
        self
    }

    /// Serves datagrams at `address`, too: the same sessions, in front of the same controller. A call or an answer that does not
    /// fit a datagram ends in words that say so; TCP carries it.
    #[must_use]
    pub fn udp(mut self, address: impl Into<String>) -> Self {
        self.port.datagrams = Some(address.into());
        self
    }

    /// The longest datagram that is sent and asked for; 1,400 bytes unless it is said. Of the server and a client the smaller size
    /// holds.
    #[must_use]
    pub fn datagram_size(mut self, size: DatagramSize) -> Self {
        self.port.limits.datagram = size;
        self
    }

    /// Encrypts all connections: clients connect with TLS, or are told so. Datagrams are never encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: leeward_tls::ServerTls) -> Self {
        self.port.encryption = Some(Arc::new(super::tls::Tls(tls)));
        self
    }

    /// Tenants of clients by the names in their certificates. Unless it is set, each name is a tenant of its own.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tenants(mut self, table: leeward_engine::TenantTable) -> Self {
        self.port.tenants = Arc::new(table);
        self
    }

    /// How long a client may take for its handshake with TLS, its wait for a turn included. 3 s unless set.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn handshake_limit(mut self, patience: Nanos) -> Self {
        self.port.limits.handshake_timeout = patience;
        self
    }

    /// The longest argument that is accepted.
    #[must_use]
    pub fn payload_limit(mut self, limit: PayloadLimit) -> Self {
        self.payload = limit;
        self
    }

    /// How long a connection may be silent or take for one frame, and how long a peer may take nothing of what waits for it.
    #[must_use]
    pub fn timeouts(mut self, silence: Nanos, stuck: Nanos) -> Self {
        let limits = &mut self.port.limits;
        (limits.idle_timeout, limits.request_timeout, limits.write_timeout) = (Some(silence), silence, stuck);
        self
    }

    /// Listens on `address` and starts the cores.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<H: Handler>(self, address: &str, handler: H) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        self.start_with(address, |_| InlineExecutor::new(&handler))
    }

    /// Listens on `address` and starts the cores, with a handler whose requests are tasks.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_async<H: AsyncHandler>(self, address: &str, handler: H) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        self.start_with(address, |handle| TaskExecutor::new(handle, &handler))
    }

    /// Listens on `address` and starts a tier: a service that answers by asking leaves, under a threading model.
    ///
    /// # Errors
    /// See [`TierError`].
    pub fn start_tier<M: MidTier>(self, address: &str, options: tier::Options, service: M) -> Result<Tier, TierError> {
        tier::start(self, address, options, service)
    }

    /// `execute` makes each core's way of executing.
    fn start_with<E: CallExecutor>(
        self,
        address: &str,
        execute: impl Fn(&Handle<Rpc<E>>) -> E,
    ) -> Result<Server, ServerError> {
        let (payload, cancels) = (self.payload, Arc::default());
        let server = self.port.start(address, |handle| Rpc::new(execute(handle), handle.clone(), payload, &cancels))?;
        Ok(Server(server))
    }
}
