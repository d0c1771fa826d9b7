//! Starting a memcached port, looking at it, stopping it.

use super::network::{CoreNetwork, Limits, WAKER};
use super::shared::{Common, Counts, Job};
use crate::protocol::Executor;
use crate::store::Store;
use leeward_control::budget::Budget;
use leeward_control::params::Params;
use leeward_control::registry::{Algorithm, Environment};
use leeward_control::server::Gauges;
use leeward_control::units::Nanos;
use leeward_rpc::server::ServerError;
use leeward_rpc::server::parts::listen;
use leeward_runtime::cores::Shared;
use leeward_runtime::{Clock, Cores, Idle, Options};
use mio::Poll;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// A memcached port to be.
#[derive(Clone, Debug)]
pub struct Builder {
    algorithm: Algorithm,
    params: Params,
    rtt: Nanos,
    slo: Nanos,
    options: Options,
    limits: Limits,
}

/// A running memcached port. Dropping it does not stop it: see [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    cores: Cores<Job>,
    common: Arc<Common>,
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().try_into().unwrap_or(u32::MAX))
}

impl Server {
    /// One core that spins, no admission control, the papers' objective, requests without a budget; every part can be set.
    pub fn builder() -> Builder {
        Builder {
            algorithm: leeward_control::algorithms::none::ALGORITHM,
            params: Params::default(),
            rtt: Nanos::from_micros(10),
            slo: Nanos::from_micros(200),
            options: Options { cores: 1, cpus: Vec::new(), idle: Idle::Spin },
            limits: Limits {
                connections: 1024,
                unsent: 1 << 20,
                silence: None,
                part: Nanos::from_secs(60),
                stuck: Nanos::from_secs(10),
                drain: Nanos::from_secs(5),
                budget: Budget::UNLIMITED,
            },
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.common.pulse.gauges()
    }

    /// Requests so far.
    pub fn counts(&self) -> Counts {
        self.common.counts()
    }

    /// The queueing delay at this moment.
    pub fn delay(&self) -> Nanos {
        let shared = self.cores.shared();
        shared.delay(shared.clock.now())
    }

    /// Whether a core could not go on, and has ended the others with it: [`Server::stop`] then says why.
    pub fn has_failed(&self) -> bool {
        self.cores.shared().is_stopping()
    }

    /// Takes no more connections and requests, sends the answers that it owes, and ends.
    ///
    /// # Errors
    /// What made a core end before its time.
    pub fn stop(self) -> io::Result<Counts> {
        self.cores.stop();
        self.cores.join()?;
        Ok(self.common.counts())
    }
}

impl Builder {
    /// The admission controller and its parameters.
    #[must_use]
    pub fn admission(mut self, algorithm: &Algorithm, params: Params) -> Self {
        self.algorithm = algorithm.clone();
        self.params = params;
        self
    }

    /// What the controller is told of the network's round trip and the objective.
    #[must_use]
    pub fn objective(mut self, rtt: Nanos, slo: Nanos) -> Self {
        self.rtt = rtt;
        self.slo = slo;
        self
    }

    /// How many cores (at least one).
    #[must_use]
    pub fn cores(mut self, cores: usize) -> Self {
        self.options.cores = cores.clamp(1, 1024);
        self
    }

    /// The CPUs to pin the cores to, in turn; none: wherever the system puts them.
    #[must_use]
    pub fn cpus(mut self, cpus: Vec<usize>) -> Self {
        self.options.cpus = cpus;
        self
    }

    /// What a core without work does.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.options.idle = idle;
        self
    }

    /// Connections that may be open at once.
    #[must_use]
    pub fn connection_limit(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// What a request may spend on queues, for cores and for locks. Unlimited unless set.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.limits.budget = budget;
        self
    }

    /// How long a connection may be silent (`None`: for ever, clients keep connections), how long it may take for one
    /// request, and how long a peer may take nothing of what waits for it.
    #[must_use]
    pub fn patience(mut self, silence: Option<Nanos>, part: Nanos, stuck: Nanos) -> Self {
        (self.limits.silence, self.limits.part, self.limits.stuck) = (silence, part, stuck);
        self
    }

    /// Bytes that may wait for a peer: while more do, nothing of it is read or executed.
    #[must_use]
    pub fn unsent_limit(mut self, bytes: usize) -> Self {
        self.limits.unsent = bytes;
        self
    }

    /// How long a stop waits for requests that are under way, before it abandons them.
    #[must_use]
    pub fn drain(mut self, patience: Nanos) -> Self {
        self.limits.drain = patience;
        self
    }

    /// Listens on `address` and starts the cores, serving `store`.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(self, address: &str, store: &Arc<Store>) -> Result<Server, ServerError> {
        let refused = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
        let listener = listen(address).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let cores = self.options.cores;
        let environment = Environment::new(cores as u32, self.rtt, self.slo);
        let halves = self.algorithm.server(&self.params, &environment)?;
        let polls = (0..cores).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        let waker = |poll: &Poll| mio::Waker::new(poll.registry(), WAKER);
        let wakers = polls.iter().map(waker).collect::<io::Result<Vec<_>>>()?;
        let common = Arc::new(Common::new(halves.control, wakers));
        let waking = Arc::clone(&common);
        let shared = Arc::new(Shared::new(cores, Clock::start(), move |core| waking.mail.wake(core)));
        let limits = Limits { connections: self.limits.connections.div_ceil(cores), ..self.limits };
        let executor = Arc::new(executor(store, &common, &shared));
        let mut listener = Some(listener);
        let networks = polls
            .into_iter()
            .zip(halves.cores)
            .enumerate()
            .map(|(index, (poll, admission))| {
                let (shared, common) = (Arc::clone(&shared), Arc::clone(&common));
                CoreNetwork::new(index, poll, listener.take(), shared, common, Arc::clone(&executor), admission, limits)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let cores = Cores::start(&self.options, shared, networks)?;
        Ok(Server { address: bound, cores, common })
    }
}

/// One that shows what the port knows besides the store.
fn executor(store: &Arc<Store>, common: &Arc<Common>, shared: &Arc<Shared<Job>>) -> Executor {
    // Weak: the cores hold the executor.
    let place: OnceLock<(Weak<Common>, Weak<Shared<Job>>)> = OnceLock::new();
    let _ = place.set((Arc::downgrade(common), Arc::downgrade(shared)));
    Executor::new(Arc::clone(store), unix_seconds()).with_stats(move |line| {
        let Some((common, shared)) = place.get() else { return };
        let (Some(common), Some(shared)) = (common.upgrade(), shared.upgrade()) else { return };
        let counts = common.counts();
        line(&"curr_connections", &counts.connections);
        line(&"total_connections", &counts.accepted);
        line(&"bytes_read", &counts.bytes_read);
        line(&"bytes_written", &counts.bytes_written);
        line(&"busy_by_admission", &counts.dropped);
        line(&"busy_by_lock", &counts.refused);
        line(&"queueing_delay_ns", &shared.delay(shared.clock.now()).0);
    })
}
