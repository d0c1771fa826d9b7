//! A service with leaves on this machine: its leaves beside the clients, and its mid-tier, under one policy of threading, on the server's CPUs. Never
//! here: which service, and what it is asked.

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
    /// Starts `leaves` on the clients' CPU: what they compute is taken from the clients' time, and never from the mid-tier's.
    ///
    /// # Errors
    /// A leaf does not start.
    pub fn start(leaves: &[Box<dyn Backend>], placement: &Placement) -> Result<Self, RealError> {
        let builder = || Server::builder().idle(IdlePolicy::Block).cpus(vec![placement.load]);
        let servers = leaves.iter().map(|leaf| leaf.start(builder(), "127.0.0.1:0")).collect::<Result<_, _>>()?;
        Ok(LocalLeaves { servers })
    }

    /// Their addresses, as a mid-tier's `--leaves` has them.
    pub fn addresses(&self) -> String {
        self.servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
    }
}

impl Drop for LocalLeaves {
    fn drop(&mut self) {
        for server in self.servers.drain(..) {
            // Whoever drops them has measured all there was: how they end tells nobody anything.
            let _ = server.stop();
        }
    }
}

/// A mid-tier under a policy of threading.
pub struct LocalMidTier {
    backend: Arc<dyn Backend>,
    policy: PolicyFactory,
    placement: Placement,
}

impl LocalMidTier {
    /// `middle` with policies that `make` makes, one per start.
    pub fn new(
        middle: Arc<dyn Backend>,
        placement: &Placement,
        make: impl Fn() -> Box<dyn ThreadingPolicy> + Send + Sync + 'static,
    ) -> Self {
        let policy = PolicyFactory::new(placement.server.len() as u16, make);
        LocalMidTier { backend: middle, policy, placement: placement.clone() }
    }

    /// Both ends for a run, with clients that ask this.
    pub fn into_service(self, asked: &InProcessService) -> InProcessService {
        InProcessService { backend: Arc::new(self), bottleneck: Bottleneck::Threads, ..asked.clone() }
    }
}

impl Backend for LocalMidTier {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let builder = builder.cpus(Vec::new()).threading_policy(self.policy.clone());
        with_affinity(&self.placement.server, || self.backend.start(builder, address))
    }
}

/// Starts `middle` for as long as `visit` takes: some services are filled before they are measured.
///
/// # Errors
/// It does not start, or has failed.
pub fn with_server<T>(
    middle: &dyn Backend,
    placement: &Placement,
    visit: impl FnOnce(SocketAddr) -> T,
) -> Result<T, RealError> {
    let server =
        with_affinity(&placement.server, || middle.start(Server::builder().idle(IdlePolicy::Block), "127.0.0.1:0"))?;
    let made = visit(server.address());
    server.stop().map_err(RealError::Core)?;
    Ok(made)
}
