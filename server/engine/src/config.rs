//! Configuration of a server, whatever it speaks, and its start.

use crate::acceptor::{InheritedListener, listen};
use crate::allocation;
use crate::core::{Core, CoreState, WAKER};
use crate::datagrams::{self, DatagramSockets, InboundDatagrams};
use crate::encryption::{Encryption, HandshakeCounters};
use crate::event_source::EventSources;
use crate::external_event_loop::ExternalEventLoop;
use crate::handle::{EngineState, Handle, SlowHalf};
use crate::job::Job;
use crate::limits::Limits;
use crate::mailboxes::Mailboxes;
use crate::protocol::Protocol;
use crate::server::Server;
use crate::statistics::ServiceInfo;
use crate::stream::Stream;
use crate::tenants::TenantTable;
use leeward_allocation::CoreLimits;
use leeward_allocation::registry::AllocationPolicy;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::Admission;
use leeward_core::units::Nanos;
use leeward_host::{ControlTicker, ControllerBounds, Counters, Recording, ShadowMode, with_watch};
use leeward_observe::{RING_CAPACITY, Watch};
use leeward_recording::Header;
use leeward_runtime::cores::Shared;
use leeward_runtime::{Allocation, Clock, CoreOptions, Cores, IdlePolicy};
use mio::Poll;
use mio::net::TcpStream;
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
        /// Address that was asked for.
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
    /// A rehearsal where it foresees nothing.
    #[error("a rehearsal is of a fixed number of cores that execute the requests themselves")]
    ShadowMode,
    /// The recording has had its server.
    #[error("a recording is of one server, and this one has had its server")]
    RecordingUsed,
    /// The service can't be started; in words.
    #[error("{0}")]
    Other(String),
}

/// Configuration of a server. A protocol's builder holds one and has its setters by
/// [`server_settings!`](crate::server_settings).
#[derive(Clone, Debug)]
pub struct Config {
    /// The admission controller.
    pub algorithm: Algorithm,
    /// Its parameters.
    pub params: Params,
    /// The network's round trip, as the controller is told.
    pub rtt: Nanos,
    /// The objective, as the controller is told.
    pub slo: Nanos,
    /// Cores, CPUs, and what an idle core does.
    pub options: CoreOptions,
    /// Bounds of connections.
    pub limits: Limits,
    /// Where the controller is recorded.
    pub recording: Option<Recording>,
    /// Allocator that grants and takes back cores.
    pub allocator: Option<AllocatorConfig>,
    /// A socket that listens already, instead of the address. The first server that starts has it.
    pub inherited: InheritedListener,
    /// Whether a watch is kept over it, for metrics and for those who ask why ([`crate::Running::source`]).
    pub watched: bool,
    /// Clients of a hundred to whom the controller's refusals happen, if it is to rehearse; 0: to none.
    pub shadow_percent: Option<u8>,
    /// Guests that the cores poll besides their connections.
    pub event_sources: EventSources,
    /// Description of what is served; the controller's name is added to it.
    pub about: ServiceInfo,
    /// Address at which datagrams are served, too. For a protocol whose bytes are frames of `leeward-wire`, and no other.
    pub datagrams: Option<String>,
    /// Encryption of all connections; whoever comes without is told so. Datagrams are never encrypted.
    pub encryption: Option<Arc<dyn Encryption>>,
    /// Tenants of clients that prove an identity.
    pub tenants: Arc<TenantTable>,
}

/// A policy of core allocation, and between how many cores it may choose.
#[derive(Clone, Debug)]
pub struct AllocatorConfig {
    /// The policy.
    pub policy: AllocationPolicy,
    /// Its parameters.
    pub params: Params,
    /// The cores that are always there.
    pub fewest: u32,
}

impl Default for Config {
    /// A core that spins, no admission control, the papers' objective, requests without a budget.
    fn default() -> Self {
        Config {
            algorithm: leeward_core::none::ALGORITHM,
            params: Params::default(),
            rtt: Nanos::from_micros(10),
            slo: Nanos::from_micros(200),
            options: CoreOptions { cores: 1, cpus: Vec::new(), idle: IdlePolicy::Spin },
            limits: Limits::default(),
            recording: None,
            allocator: None,
            inherited: InheritedListener::default(),
            watched: false,
            shadow_percent: None,
            event_sources: EventSources::default(),
            about: ServiceInfo::default(),
            datagrams: None,
            encryption: None,
            tenants: Arc::default(),
        }
    }
}

impl Config {
    /// Listens on `address` and starts the cores. `protocol` makes each core's protocol.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<P: Protocol>(self, address: &str, protocol: impl Fn(&Handle<P>) -> P) -> Result<Server, ServerError> {
        self.start_on::<P, TcpStream>(address, protocol)
    }

    /// As [`Config::start`], on another transport than TCP's own.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_on<P: Protocol, S: Stream>(
        self,
        address: &str,
        protocol: impl Fn(&Handle<P>) -> P,
    ) -> Result<Server, ServerError> {
        let cores = self.options.cores;
        let options = self.options.clone();
        let ServerParts { bound, datagrams, handle, networks, allocator, .. } =
            self.assemble::<P, S>(address, cores, protocol)?;
        let shared = Arc::clone(&handle.shared);
        let cores = match allocator {
            None => Cores::start(&options, shared, networks)?,
            Some((allocator, limits)) => {
                let admission = Box::new(SlowHalf(Arc::clone(&handle.engine)));
                let allocation = Allocation { allocator, limits, admission };
                Cores::start_allocated(&options, shared, networks, allocation)?
            }
        };
        Ok(Server::new(bound, datagrams, cores, handle))
    }

    /// Listens on `address` for threads that the caller brings: see [`Front`].
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_event_loop<P: Protocol>(
        mut self,
        address: &str,
        protocol: impl Fn(&Handle<P>) -> P,
    ) -> Result<ExternalEventLoop<P>, ServerError> {
        // One half of the controller for what comes, one for what is executed elsewhere. An allocator has no cores to grant here.
        self.options.cores = self.options.cores.max(2);
        self.allocator = None;
        // Threads that come and go look at one poll; nobody has asked for datagrams there.
        self.datagrams = None;
        let ServerParts { bound, handle, networks, halves, .. } =
            self.assemble::<P, TcpStream>(address, 1, protocol)?;
        let parts = networks.into_iter().next().zip(halves.into_iter().next());
        let (core, admission) = parts.ok_or_else(|| io::Error::other("a controller without cores"))?;
        Ok(ExternalEventLoop::new(bound, handle, core, admission))
    }

    /// Makes so many networks of a server, the first of them with the listener.
    fn assemble<P: Protocol, S: Stream>(
        self,
        address: &str,
        networks: usize,
        protocol: impl Fn(&Handle<P>) -> P,
    ) -> Result<ServerParts<P, S>, ServerError> {
        let refused = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
        let inherited = self.inherited.take().map_err(refused)?;
        let listener = inherited.map_or_else(|| listen(address), Ok).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let cores = self.options.cores;
        let mut environment = Environment::new(cores as u32, self.rtt, self.slo);
        let mut allocator = None;
        if let Some(AllocatorConfig { policy, params, fewest }) = self.allocator {
            let limits = CoreLimits::new(fewest, cores as u32);
            allocator = Some((allocation::build(&policy, &params, limits)?, limits));
            environment = environment.with_allocator();
        }
        let mut halves = self.algorithm.server(&self.params, &environment)?;
        if let Some(recording) = &self.recording {
            let header = Header::new("server", &self.algorithm, &self.params, &environment);
            halves = recording.attach(halves, &header).ok_or(ServerError::RecordingUsed)?;
        }
        // A rehearsal learns from the watch how long requests of a method take.
        let is_watched = self.watched || self.shadow_percent.is_some();
        let watch = is_watched.then(|| Arc::new(Watch::new(cores, RING_CAPACITY)));
        let bounds = ControllerBounds::of(&self.algorithm, &self.params, &environment);
        if let Some(watch) = &watch {
            // Outside of a recording: what is recorded is the controller's alone.
            halves = with_watch(halves, watch, bounds);
        }
        let mut rehearsal = None;
        if let Some(percent) = self.shadow_percent {
            if allocator.is_some() || networks != cores {
                return Err(ServerError::ShadowMode);
            }
            let rehearsed;
            (halves, rehearsed) = ShadowMode::of(halves, percent, watch.clone());
            rehearsal = Some(rehearsed);
        }
        let polls = (0..networks).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        let waker = |poll: &Poll| mio::Waker::new(poll.registry(), WAKER);
        let wakers = polls.iter().map(waker).collect::<io::Result<Vec<_>>>()?;
        let mut registries = Vec::new();
        for index in 0..networks {
            let of_first = polls.first().filter(|_| index > 0 && allocator.is_some());
            registries.push(of_first.map(|poll| poll.registry().try_clone()).transpose()?);
        }
        let common = Arc::new(EngineState {
            ticker: ControlTicker::new(halves.control),
            counters: wakers.iter().map(|_| Counters::default()).collect(),
            mailboxes: Mailboxes::new(wakers),
            slo: self.slo,
            target: bounds.target,
            watch,
            shadow: rehearsal,
            about: ServiceInfo { admission: Some(self.algorithm.name.into()), ..self.about },
            encryption: self.encryption,
            tenants: self.tenants,
            handshakes: HandshakeCounters::default(),
        });
        let waking = Arc::clone(&common);
        let shared = Shared::<Job<P::Call>>::new(networks, Clock::start(), move |core| waking.mailboxes.wake(core));
        let handle = Handle { engine: common, shared: Arc::new(shared) };
        if let Some(rehearsal) = &handle.engine.shadow {
            // The cores' state holds the rehearsal: a strong count would never end.
            let shared = Arc::downgrade(&handle.shared);
            rehearsal.set_idle_source(move || shared.upgrade().map_or(Nanos::ZERO, |shared| shared.idle()));
        }
        // Rounded up: the limit holds for all networks together, and connections are dealt out in turn.
        let connections = self.limits.connections.div_ceil(networks);
        let receiving = self.limits.receive_memory.div_ceil(networks);
        let sending = self.limits.send_memory.div_ceil(networks);
        let limits =
            Limits { connections, receive_memory: receiving, send_memory: sending, slo: self.slo, ..self.limits };
        let (mut sockets, mut at) = (Vec::new(), None);
        if let Some(address) = &self.datagrams {
            let refused = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
            let DatagramSockets { bound, validation_socket: door, cores, validation: secrets, ports } =
                datagrams::bind(address, networks).map_err(refused)?;
            let mut door = Some((door, ports));
            let inbound = |socket| (socket, InboundDatagrams::new(Arc::clone(&secrets), door.take(), limits.datagram));
            sockets.extend(cores.into_iter().map(inbound));
            at = Some(bound);
        }
        let mut sockets = sockets.into_iter();
        let mut listener = Some(listener);
        let mut fast = halves.cores.into_iter();
        let parts = polls.into_iter().zip(registries).zip(fast.by_ref()).enumerate();
        let networks = parts
            .map(|(index, ((poll, first), admission))| {
                let local = CoreState::new(index, handle.clone(), admission, limits);
                let guests = self.event_sources.take(index, networks);
                let mut core = Core::<P, S>::new(protocol(&handle), local, poll, first, listener.take(), guests)?;
                if let Some((socket, inbound)) = sockets.next() {
                    core.serve_datagrams(socket, inbound)?;
                }
                Ok(core)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(ServerParts { bound, datagrams: at, handle, networks, allocator, halves: fast.collect() })
    }
}

/// A server without threads.
struct ServerParts<P: Protocol, S> {
    bound: SocketAddr,
    /// Where datagrams are served.
    datagrams: Option<SocketAddr>,
    handle: Handle<P>,
    networks: Vec<Core<P, S>>,
    allocator: Option<(Box<dyn leeward_allocation::Allocator>, CoreLimits)>,
    /// Fast halves of the controller that no network has.
    halves: Vec<Box<dyn Admission>>,
}

/// The setters that every server's builder has. To be used inside of its `impl`; the builder's field `port` is a
/// [`Config`](crate::Config).
#[macro_export]
macro_rules! server_settings {
    () => {
        /// The admission controller and its parameters.
        #[must_use]
        pub fn admission(
            mut self,
            algorithm: &leeward_core::registry::Algorithm,
            params: leeward_core::params::Params,
        ) -> Self {
            self.port.algorithm = algorithm.clone();
            self.port.params = params;
            self
        }

        /// Sets the network's round trip and the objective for the controller.
        #[must_use]
        pub fn objective(mut self, rtt: leeward_core::units::Nanos, slo: leeward_core::units::Nanos) -> Self {
            self.port.rtt = rtt;
            self.port.slo = slo;
            self
        }

        /// How many cores (at least one).
        #[must_use]
        pub fn cores(mut self, cores: usize) -> Self {
            self.port.options.cores = cores.clamp(1, 1024);
            self
        }

        /// Cores that come and go: `policy` decides, between `fewest` cores (at least one, the first, which always stays)
        /// and as many as `cores` says. The admission controller is told of it. A parked core's CPU is the system's; what
        /// its connections send is read by the first core meanwhile.
        ///
        /// What is not set of the policy's parameters is as [`leeward_engine::allocation::DEFAULTS`] says: threads of an
        /// operating system come more slowly than the simulator's cores.
        #[must_use]
        pub fn allocator(
            mut self,
            policy: &$crate::AllocationPolicy,
            params: leeward_core::params::Params,
            fewest: usize,
        ) -> Self {
            let fewest = u32::try_from(fewest).unwrap_or(u32::MAX);
            self.port.allocator = Some($crate::AllocatorConfig { policy: *policy, params, fewest });
            self
        }

        /// The CPUs to pin the cores to, in turn; none: wherever the system puts them.
        #[must_use]
        pub fn cpus(mut self, cpus: Vec<usize>) -> Self {
            self.port.options.cpus = cpus;
            self
        }

        /// Sets the behaviour of a core without work.
        #[must_use]
        pub fn idle(mut self, idle: leeward_runtime::IdlePolicy) -> Self {
            self.port.options.idle = idle;
            self
        }

        /// Connections that may be open at once.
        #[must_use]
        pub fn connection_limit(mut self, connections: usize) -> Self {
            self.port.limits.connections = connections;
            self
        }

        /// Sets the budget of a request for queues, for cores and for locks, if it brings none itself. Unlimited unless
        /// set. The request's wait since its packet came is taken off before it is executed. Its waits for locks from
        /// then on ([`leeward_runtime::locks`]) are taken off as it goes.
        #[must_use]
        pub fn budget(mut self, budget: leeward_core::budget::Budget) -> Self {
            self.port.limits.budget = budget;
            self
        }

        /// Bytes that may wait for a peer: while more do, nothing of it is read or executed. While its socket is full 64 KiB are enough, if an
        /// answer longer than 16 KiB is among them or more than half of the [memory for answers](Self::sending_limit) is in use.
        #[must_use]
        pub fn unsent_limit(mut self, bytes: usize) -> Self {
            self.port.limits.unsent = bytes;
            self
        }

        /// Memory, in bytes, for requests that are coming and are longer than a connection's own buffer of 16 KiB (32 KiB
        /// with memcached's protocol): of all connections together, in equal shares per core. While it is used up, the
        /// others' long requests are not read, and who does not go on with his own within seconds is sent away.
        #[must_use]
        pub fn receiving_limit(mut self, bytes: usize) -> Self {
            self.port.limits.receive_memory = bytes;
            self
        }

        /// Memory, in bytes, of answers that have not been taken: of all connections together, in equal shares per core. While it is used
        /// up, only connections are read that take their answers, and those that take nothing for half a second are ended; while twice
        /// as much is used, none is read. With memcached's protocol it is long answers alone that these may have, and others have not.
        #[must_use]
        pub fn sending_limit(mut self, bytes: usize) -> Self {
            self.port.limits.send_memory = bytes;
            self
        }

        /// How long a stop waits for requests that are under way, before it abandons them.
        #[must_use]
        pub fn drain(mut self, patience: leeward_core::units::Nanos) -> Self {
            self.port.limits.drain_timeout = patience;
            self
        }

        /// Whether a core may read and write several sockets in one system call, by io_uring, where the kernel has it; it
        /// may unless set. Where the kernel has it not, or forbids it, the server works without.
        #[must_use]
        pub fn io_uring(mut self, io_uring: $crate::IoUring) -> Self {
            self.port.limits.io_uring = io_uring;
            self
        }

        /// Has core `core` (counted from 0 and around) poll `guest` beside its own connections: an `rpc` client that
        /// was made by `build_polled`, for one. It is dropped when the server has stopped.
        #[must_use]
        pub fn poll_also(self, core: usize, guest: impl $crate::EventSource + 'static) -> Self {
            self.port.event_sources.add(core, Box::new(guest));
            self
        }

        /// Has the server accept from a socket that listens already, instead of from its address.
        #[must_use]
        pub fn inherited(mut self, socket: $crate::InheritedListener) -> Self {
            self.port.inherited = socket;
            self
        }

        /// Keeps a watch over the server: waits and decisions, for metrics and for those who ask why they were refused. Costs some
        /// nanoseconds per request and 4 MiB.
        #[must_use]
        pub fn watched(mut self, watched: bool) -> Self {
            self.port.watched = watched;
            self
        }

        /// Has the controller rehearse: it decides on the queue that would be if its refusals happened, and they happen to `percent` of a
        /// hundred tenants (connections, where there are no tenants); 0: to none. Clients hear of no credits and no thresholds meanwhile.
        /// All cores decide under one mutex. For a fixed number of cores that execute requests themselves.
        #[must_use]
        pub fn rehearse(mut self, percent: u8) -> Self {
            self.port.shadow_percent = Some(percent.min(100));
            self
        }

        /// Records what the controller is asked and decides, for `leeward replay`. See [`leeward_host::Recording`] for what
        /// it costs.
        #[must_use]
        pub fn record(mut self, recording: &leeward_host::Recording) -> Self {
            self.port.recording = Some(recording.clone());
            self
        }
    };
}
