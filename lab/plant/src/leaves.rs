//! A service with leaves on this machine. The leaves run beside the clients; the mid-tier runs
//! under one threading policy on the server's CPUs. Does not contain the service and its requests.

use crate::error::RealError;
use crate::placement::Placement;
use crate::tier::with_affinity;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_rpc::tier::PolicyFactory;
use leeward_runtime::IdlePolicy;
use leeward_services::backend::{Backend, Bottleneck, InProcessService};
use leeward_threading::ThreadingPolicy;
use std::net::SocketAddr;
use std::sync::Arc;

/// Leaves that serve until they are dropped.
pub struct LocalLeaves {
    servers: Vec<Server>,
}

impl LocalLeaves {
    /// Starts `leaves` on the clients' CPU: their CPU time is taken from the clients, and never
    /// from the mid-tier.
    ///
    /// # Errors
    ///
    /// A leaf does not start.
    pub fn start(leaves: &[Box<dyn Backend>], placement: &Placement) -> Result<Self, RealError> {
        let builder = || Server::builder().idle(IdlePolicy::Block).cpus(vec![placement.load]);
        let servers = leaves.iter().map(|leaf| leaf.start(builder(), "127.0.0.1:0")).collect::<Result<_, _>>()?;
        Ok(LocalLeaves { servers })
    }

    /// Addresses of the leaves, in the format of a mid-tier's `--leaves`.
    pub fn addresses(&self) -> String {
        self.servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
    }
}

impl Drop for LocalLeaves {
    fn drop(&mut self) {
        for server in self.servers.drain(..) {
            // The measurement is over, so an error at the end is irrelevant.
            let _ = server.stop();
        }
    }
}

/// A mid-tier under a threading policy.
pub struct LocalMidTier {
    backend: Arc<dyn Backend>,
    policy: PolicyFactory,
    placement: Placement,
}

impl LocalMidTier {
    /// Combines `middle` with policies from `make`, one per start.
    pub fn new(
        middle: Arc<dyn Backend>,
        placement: &Placement,
        make: impl Fn() -> Box<dyn ThreadingPolicy> + Send + Sync + 'static,
    ) -> Self {
        let policy = PolicyFactory::new(placement.server.len() as u16, make);
        LocalMidTier { backend: middle, policy, placement: placement.clone() }
    }

    /// Service for a run, with the clients' requests from `requests`.
    pub fn into_service(self, requests: &InProcessService) -> InProcessService {
        InProcessService { backend: Arc::new(self), bottleneck: Bottleneck::Threads, ..requests.clone() }
    }
}

impl Backend for LocalMidTier {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let builder = builder.cpus(Vec::new()).threading_policy(self.policy.clone());
        with_affinity(&self.placement.server, || self.backend.start(builder, address))
    }
}

/// Starts `middle` while `visit` runs, because some services are filled before they are measured.
///
/// # Errors
///
/// The server does not start, or has failed.
pub fn with_server<T>(
    middle: &dyn Backend,
    placement: &Placement,
    visit: impl FnOnce(SocketAddr) -> T,
) -> Result<T, RealError> {
    let server =
        with_affinity(&placement.server, || middle.start(Server::builder().idle(IdlePolicy::Block), "127.0.0.1:0"))?;
    let result = visit(server.address());
    server.stop().map_err(RealError::Core)?;
    Ok(result)
}
