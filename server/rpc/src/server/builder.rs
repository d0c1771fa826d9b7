//! Builds and starts a server.

use super::async_handler::AsyncHandler;
use super::executor::{CallExecutor, InlineExecutor, TaskExecutor};
use super::handler::Handler;
use super::protocol::Rpc;
use crate::tier::{self, MidTier, PolicyFactory, Tier, TierError};
use crate::wire::PayloadLimit;
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;
use leeward_engine::statistics::{ServiceInfo, TierReport};
use leeward_engine::{Config, Handle, ServerError};
use leeward_host::RequestCounts;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// Builder of a server.
#[derive(Clone, Debug)]
pub struct Builder {
    port: Config,
    payload: PayloadLimit,
    pub(crate) policy_factory: Option<PolicyFactory>,
}

/// A running server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server(leeward_engine::Server);

impl From<leeward_engine::Server> for Server {
    /// Wraps an engine's server, such as a tier with its leaves.
    fn from(server: leeward_engine::Server) -> Self {
        Server(server)
    }
}

impl Server {
    /// Creates a builder with one spinning core, no admission control and the papers' objective.
    pub fn builder() -> Builder {
        Builder { port: Config::default(), payload: PayloadLimit::DEFAULT, policy_factory: None }
    }

    /// Stops the server: it accepts no more connections and calls, and sends the responses that it
    /// owes. Returns the final counts of requests.
    ///
    /// # Errors
    /// A core has ended early: its error.
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

    /// Settings that servers of any protocol share: for a second port beside this server.
    pub fn config(&self) -> &Config {
        &self.port
    }

    /// Sets the policy that changes the threading of a tier, unless the tier's options have one.
    #[must_use]
    pub fn threading_policy(mut self, factory: PolicyFactory) -> Self {
        self.policy_factory = Some(factory);
        self
    }

    /// Sets the description of the service in the statistics; tiers validate their leaves with it.
    #[must_use]
    pub fn service_info(mut self, about: ServiceInfo) -> Self {
        self.port.about = about;
        self
    }

    /// Sets the report about leaves in the statistics.
    pub(crate) fn tier(mut self, report: TierReport) -> Self {
        self.port.tier = report;
        self
    }

    /// Serves datagrams at `address`, too: the same sessions, under the same controller.
    ///
    /// A call or a response that does not fit a datagram ends with an error message; TCP carries
    /// it.
    #[must_use]
    pub fn udp(mut self, address: impl Into<String>) -> Self {
        self.port.datagrams = Some(address.into());
        self
    }

    /// Sets the longest datagram, for both directions. Default: 1,400 bytes.
    ///
    /// The smaller size of server and client holds.
    #[must_use]
    pub fn datagram_size(mut self, size: DatagramSize) -> Self {
        self.port.limits.datagram = size;
        self
    }

    /// Encrypts all connections; clients without TLS get an error. Datagrams are never encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: leeward_tls::ServerTls) -> Self {
        self.port.encryption = Some(Arc::new(super::tls::Tls(tls)));
        self
    }

    /// Sets the tenants of clients by the names in their certificates. Default: each name is its
    /// own tenant.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tenants(mut self, table: leeward_engine::TenantTable) -> Self {
        self.port.tenants = Arc::new(table);
        self
    }

    /// Sets the time limit of a client's TLS handshake, queueing included. Default: 3 s.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn handshake_limit(mut self, limit: Nanos) -> Self {
        self.port.limits.handshake_timeout = limit;
        self
    }

    /// Sets the longest accepted argument.
    #[must_use]
    pub fn payload_limit(mut self, limit: PayloadLimit) -> Self {
        self.payload = limit;
        self
    }

    /// Sets two time limits of connections.
    ///
    /// - `silence`: longest silence of a connection, and longest time for one frame.
    /// - `stuck`: longest time in which a peer takes none of its pending output.
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

    /// Listens on `address` and starts the cores, with an asynchronous handler.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_async<H: AsyncHandler>(self, address: &str, handler: H) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        self.start_with(address, |handle| TaskExecutor::new(handle, &handler))
    }

    /// Listens on `address` and starts a tier: a service that calls leaves before it responds,
    /// under a threading model.
    ///
    /// # Errors
    /// See [`TierError`].
    pub fn start_tier<M: MidTier>(self, address: &str, options: tier::Options, service: M) -> Result<Tier, TierError> {
        tier::start(self, address, options, service)
    }

    /// Starts the server; `execute` creates each core's executor.
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
