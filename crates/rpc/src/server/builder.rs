//! Starting a server, looking at it, stopping it.

use super::acceptor::listen;
use super::allocation;
use super::async_handler::AsyncHandler;
use super::execute::{Execute, Plain, Tasks};
use super::handler::Handler;
use super::network::{CoreNetwork, Limits, WAKER};
use super::receive::IoUring;
use super::recording::Recording;
use super::shared::{Common, Counts, Job};
use crate::wire::PayloadLimit;
use leeward_control::allocation::CoreLimits;
use leeward_control::allocation::registry::AllocationPolicy;
use leeward_control::budget::Budget;
use leeward_control::params::{ParamError, Params};
use leeward_control::recording::Header;
use leeward_control::registry::{Algorithm, Environment, Registry};
use leeward_control::server::Gauges;
use leeward_control::units::Nanos;
use leeward_runtime::cores::Shared;
use leeward_runtime::{Allocation, Clock, CoreUsage, Cores, Idle, Options};
use mio::Poll;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A server that can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is in use, not ours, or no address at all.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no thread, poll or descriptor to give.
    #[error("can't start the server's cores: {0}")]
    Cores(#[from] io::Error),
    /// The controller refuses its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The recording has had its server.
    #[error("a recording is of one server, and this one has had its server")]
    Recorded,
}

/// A server to be.
#[derive(Clone, Debug)]
pub struct Builder {
    algorithm: Algorithm,
    params: Params,
    rtt: Nanos,
    slo: Nanos,
    options: Options,
    limits: Limits,
    recording: Option<Recording>,
    allocator: Option<Allocator>,
}

/// A policy of core allocation, and between how many cores it may choose.
#[derive(Clone, Debug)]
struct Allocator {
    policy: AllocationPolicy,
    params: Params,
    limits: CoreLimits,
}

/// A running server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    cores: Cores<Job>,
    common: Arc<Common>,
}

impl Server {
    /// One core that spins, no admission control, the papers' objective; every part can be set.
    pub fn builder() -> Builder {
        let none = Registry::builtin().algorithms().next().cloned();
        Builder {
            algorithm: none.unwrap_or(leeward_control::algorithms::none::ALGORITHM),
            params: Params::default(),
            rtt: Nanos::from_micros(10),
            slo: Nanos::from_micros(200),
            options: Options { cores: 1, cpus: Vec::new(), idle: Idle::Spin },
            limits: Limits {
                payload: PayloadLimit::DEFAULT,
                connections: 16_384,
                unanswered: 256,
                unsent: 1 << 20,
                silence: Nanos::from_secs(300),
                stuck: Nanos::from_secs(10),
                drain: Nanos::from_secs(5),
                io_uring: IoUring::Auto,
                budget: Budget::UNLIMITED,
                slo: Nanos::ZERO,
            },
            recording: None,
            allocator: None,
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

    /// How long the cores have had nothing to do since the start, all together.
    pub fn idle(&self) -> Nanos {
        self.cores.shared().idle()
    }

    /// Who has had the cores so far; `None` without an allocator.
    pub fn core_usage(&self) -> Option<CoreUsage> {
        self.cores.shared().core_usage()
    }

    /// Whether a core could not go on, and has ended the others with it: [`Server::stop`] then says why.
    pub fn has_failed(&self) -> bool {
        // Nobody else asks the cores to end while there is a server.
        self.cores.shared().is_stopping()
    }

    /// Takes no more connections and calls, sends the answers that it owes, and ends. Returns what became of all requests.
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

    /// How many cores (at least one).
    #[must_use]
    pub fn cores(mut self, cores: usize) -> Self {
        self.options.cores = cores.clamp(1, 1024);
        self
    }

    /// Cores that come and go: `policy` decides, between `fewest` cores (at least one, the first, which always stays) and
    /// as many as [`Builder::cores`] says. The admission controller is told of it. A parked core's CPU is the system's; what
    /// its connections send is read by the first core meanwhile.
    ///
    /// What is not set of the policy's parameters is as [`super::allocation::DEFAULTS`] says: threads of an operating
    /// system come more slowly than the simulator's cores.
    #[must_use]
    pub fn allocator(mut self, policy: &AllocationPolicy, params: Params, fewest: usize) -> Self {
        let limits = CoreLimits::new(u32::try_from(fewest).unwrap_or(u32::MAX), u32::MAX);
        self.allocator = Some(Allocator { policy: *policy, params, limits });
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

    /// What the controller is told of the network's round trip and the objective.
    #[must_use]
    pub fn objective(mut self, rtt: Nanos, slo: Nanos) -> Self {
        self.rtt = rtt;
        self.slo = slo;
        self
    }

    /// The longest argument that is accepted.
    #[must_use]
    pub fn payload_limit(mut self, limit: PayloadLimit) -> Self {
        self.limits.payload = limit;
        self
    }

    /// Connections that may be open at once.
    #[must_use]
    pub fn connection_limit(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// How long a connection may be silent or take for one frame, and how long a peer may take nothing of what waits for it.
    #[must_use]
    pub fn patience(mut self, silence: Nanos, stuck: Nanos) -> Self {
        self.limits.silence = silence;
        self.limits.stuck = stuck;
        self
    }

    /// How long a stop waits for requests that are under way, before it abandons them.
    #[must_use]
    pub fn drain(mut self, patience: Nanos) -> Self {
        self.limits.drain = patience;
        self
    }

    /// Whether a core may read and write several sockets in one system call, by io_uring, where the kernel has it; it may
    /// unless set. Where it has not, or forbids it, the server works without.
    #[must_use]
    pub fn io_uring(mut self, io_uring: IoUring) -> Self {
        self.limits.io_uring = io_uring;
        self
    }

    /// What a request may spend on queues if its header sets no limit: [`Budget::of_target`] of the target delay. Unlimited
    /// unless set. What it has waited since its packet came is taken off before its handler begins; what it waits for cores
    /// and locks from then on ([`leeward_runtime::locks`]) is taken off as it goes.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.limits.budget = budget;
        self
    }

    /// Records what the controller is asked and decides, for `leeward replay`. See [`Recording`] for what it costs.
    #[must_use]
    pub fn record(mut self, recording: &Recording) -> Self {
        self.recording = Some(recording.clone());
        self
    }

    /// Listens on `address` and starts the cores.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<H: Handler>(self, address: &str, handler: H) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        self.start_with(address, |shared, _| Plain { handler: Arc::clone(&handler), shared: Arc::clone(shared) })
    }

    /// Listens on `address` and starts the cores, with a handler whose requests are tasks.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_async<H: AsyncHandler>(self, address: &str, handler: H) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        self.start_with(address, |shared, common| Tasks::new(shared, common, &handler))
    }

    /// `execute` makes each core's way of executing.
    fn start_with<E: Execute>(
        self,
        address: &str,
        execute: impl Fn(&Arc<Shared<Job>>, &Arc<Common>) -> E,
    ) -> Result<Server, ServerError> {
        let refused = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
        let listener = listen(address).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let cores = self.options.cores;
        let mut environment = Environment::new(cores as u32, self.rtt, self.slo);
        let mut allocator = None;
        if let Some(Allocator { policy, params, limits }) = self.allocator {
            let limits = CoreLimits::new(limits.min, cores as u32);
            allocator = Some((allocation::build(&policy, &params, limits)?, limits));
            environment = environment.allocated();
        }
        let mut halves = self.algorithm.server(&self.params, &environment)?;
        if let Some(recording) = &self.recording {
            let header = Header::new("server", &self.algorithm, &self.params, &environment);
            halves = recording.attach(halves, &header).ok_or(ServerError::Recorded)?;
        }
        let polls = (0..cores).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        let waker = |poll: &Poll| mio::Waker::new(poll.registry(), WAKER);
        let wakers = polls.iter().map(waker).collect::<io::Result<Vec<_>>>()?;
        let mut registries = Vec::new();
        for index in 0..cores {
            let of_first = polls.first().filter(|_| index > 0 && allocator.is_some());
            registries.push(of_first.map(|poll| poll.registry().try_clone()).transpose()?);
        }
        let common = Arc::new(Common::new(halves.control, wakers));
        let waking = Arc::clone(&common);
        let shared = Arc::new(Shared::new(cores, Clock::start(), move |core| waking.mail.wake(core)));
        // Rounded up: the limit holds for all cores together, and connections are dealt out in turn.
        let limits = Limits { connections: self.limits.connections.div_ceil(cores), slo: self.slo, ..self.limits };
        let mut listener = Some(listener);
        let networks = polls
            .into_iter()
            .zip(registries)
            .zip(halves.cores)
            .enumerate()
            .map(|(index, ((poll, first), admission))| {
                let handler = execute(&shared, &common);
                let (shared, common) = (Arc::clone(&shared), Arc::clone(&common));
                CoreNetwork::new(index, poll, first, listener.take(), shared, common, handler, admission, limits)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let cores = match allocator {
            None => Cores::start(&self.options, shared, networks)?,
            Some((allocator, limits)) => {
                let admission = Box::new(allocation::Admission(Arc::clone(&common)));
                let allocation = Allocation { allocator, limits, admission };
                Cores::start_allocated(&self.options, shared, networks, allocation)?
            }
        };
        Ok(Server { address: bound, cores, common })
    }
}
