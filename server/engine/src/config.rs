//! Configuration and start of a server, for any protocol.

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
use crate::statistics::{ServiceInfo, TierReport};
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
    /// The address is in use, not local, or doesn't resolve.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no thread, poll or descriptor left.
    #[error("can't start the server's cores: {0}")]
    Cores(#[from] io::Error),
    /// The controller rejects its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// Shadow mode was requested where its predictions would not hold.
    #[error("shadow mode needs a fixed number of cores that execute the requests themselves")]
    ShadowMode,
    /// The recording was used by another server.
    #[error("a recording belongs to one server, and this one was already used")]
    RecordingUsed,
    /// The service can't be started, with the reason.
    #[error("{0}")]
    Other(String),
}

/// Configuration of a server. A protocol's builder holds one and gets its setters from
/// [`server_settings!`](crate::server_settings).
#[derive(Clone, Debug)]
pub struct Config {
    /// The admission controller.
    pub algorithm: Algorithm,
    /// The controller's parameters.
    pub params: Params,
    /// Network round trip, for the controller.
    pub rtt: Nanos,
    /// Latency objective, for the controller.
    pub slo: Nanos,
    /// Number of cores, their CPUs, and the behaviour of an idle core.
    pub options: CoreOptions,
    /// Limits of connections.
    pub limits: Limits,
    /// Recording of the controller.
    pub recording: Option<Recording>,
    /// Allocator that grants and revokes cores.
    pub allocator: Option<AllocatorConfig>,
    /// A socket that listens already, used instead of the address. The first server that starts
    /// takes it.
    pub inherited: InheritedListener,
    /// Whether the server is observed, for metrics and explanations of rejections
    /// ([`crate::RunningServer::source`]).
    pub watched: bool,
    /// Percentage of clients for which rejections are enforced in shadow mode; 0: none. `None`: no
    /// shadow mode.
    pub shadow_percent: Option<u8>,
    /// Event sources that the cores poll besides their connections.
    pub event_sources: EventSources,
    /// Description of the service. The controller's name is added to it.
    pub about: ServiceInfo,
    /// Leaves of a server that calls others before it answers, for the statistics.
    pub tier: TierReport,
    /// Address that serves datagrams, too. Only for a protocol whose bytes are frames of
    /// `leeward-wire`.
    pub datagrams: Option<String>,
    /// Encryption of all connections. An unencrypted client gets an error response. Datagrams are
    /// never encrypted.
    pub encryption: Option<Arc<dyn Encryption>>,
    /// Tenants of clients that prove an identity.
    pub tenants: Arc<TenantTable>,
}

/// A core allocation policy with its bounds.
#[derive(Clone, Debug)]
pub struct AllocatorConfig {
    /// The policy.
    pub policy: AllocationPolicy,
    /// The policy's parameters.
    pub params: Params,
    /// Minimum number of granted cores.
    pub fewest: u32,
}

impl Default for Config {
    /// One spinning core, no admission control, the papers' objective, requests without a budget.
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
            tier: TierReport::default(),
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

    /// Starts a server as [`Config::start`] does, on another transport than plain TCP.
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

    /// Listens on `address` for threads that the caller brings: see [`ExternalEventLoop`].
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start_event_loop<P: Protocol>(
        mut self,
        address: &str,
        protocol: impl Fn(&Handle<P>) -> P,
    ) -> Result<ExternalEventLoop<P>, ServerError> {
        // One half of the controller serves arrivals, one the requests executed elsewhere. An
        // allocator has no cores to grant here.
        self.options.cores = self.options.cores.max(2);
        self.allocator = None;
        // External threads share one poll, which serves no datagrams.
        self.datagrams = None;
        let ServerParts { bound, handle, networks, halves, .. } =
            self.assemble::<P, TcpStream>(address, 1, protocol)?;
        let parts = networks.into_iter().next().zip(halves.into_iter().next());
        let (core, admission) = parts.ok_or_else(|| io::Error::other("a controller without cores"))?;
        Ok(ExternalEventLoop::new(bound, handle, core, admission))
    }

    /// Makes `networks` networks of a server. The first has the listener.
    fn assemble<P: Protocol, S: Stream>(
        self,
        address: &str,
        networks: usize,
        protocol: impl Fn(&Handle<P>) -> P,
    ) -> Result<ServerParts<P, S>, ServerError> {
        let listen_error = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
        let inherited = self.inherited.take().map_err(listen_error)?;
        let listener = inherited.map_or_else(|| listen(address), Ok).map_err(listen_error)?;
        let bound = listener.local_addr().map_err(listen_error)?;
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
        // Shadow mode learns from the watch how long requests of a method take.
        let is_watched = self.watched || self.shadow_percent.is_some();
        let watch = is_watched.then(|| Arc::new(Watch::new(cores, RING_CAPACITY)));
        let bounds = ControllerBounds::of(&self.algorithm, &self.params, &environment);
        if let Some(watch) = &watch {
            // Added outside of a recording, which then holds the controller's calls alone.
            halves = with_watch(halves, watch, bounds);
        }
        let mut shadow_mode = None;
        if let Some(percent) = self.shadow_percent {
            if allocator.is_some() || networks != cores {
                return Err(ServerError::ShadowMode);
            }
            let attached;
            (halves, attached) = ShadowMode::of(halves, percent, watch.clone());
            shadow_mode = Some(attached);
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
            shadow: shadow_mode,
            about: ServiceInfo { admission: Some(self.algorithm.name.into()), ..self.about },
            tier: self.tier,
            encryption: self.encryption,
            tenants: self.tenants,
            handshakes: HandshakeCounters::default(),
        });
        let waking = Arc::clone(&common);
        let shared = Shared::<Job<P::Call>>::new(networks, Clock::start(), move |core| waking.mailboxes.wake(core));
        let handle = Handle { engine: common, shared: Arc::new(shared) };
        if let Some(shadow_mode) = &handle.engine.shadow {
            // The cores' state holds the shadow mode. A strong count would keep both alive for
            // ever.
            let shared = Arc::downgrade(&handle.shared);
            shadow_mode.set_idle_source(move || shared.upgrade().map_or(Nanos::ZERO, |shared| shared.idle()));
        }
        // Rounded up: the limits hold for all networks together, and connections are distributed in
        // turn.
        let connections = self.limits.connections.div_ceil(networks);
        let receiving = self.limits.receive_memory.div_ceil(networks);
        let sending = self.limits.send_memory.div_ceil(networks);
        let limits =
            Limits { connections, receive_memory: receiving, send_memory: sending, slo: self.slo, ..self.limits };
        let (mut sockets, mut at) = (Vec::new(), None);
        if let Some(address) = &self.datagrams {
            let listen_error = |source| ServerError::Listen { address: address.chars().take(100).collect(), source };
            let DatagramSockets { bound, validation_socket: door, cores, validation: secrets, ports } =
                datagrams::bind(address, networks).map_err(listen_error)?;
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
                let sources = self.event_sources.take(index, networks);
                let mut core = Core::<P, S>::new(protocol(&handle), local, poll, first, listener.take(), sources)?;
                if let Some((socket, inbound)) = sockets.next() {
                    core.serve_datagrams(socket, inbound)?;
                }
                Ok(core)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(ServerParts { bound, datagrams: at, handle, networks, allocator, halves: fast.collect() })
    }
}

/// A server without its threads.
struct ServerParts<P: Protocol, S> {
    bound: SocketAddr,
    /// Address that serves datagrams.
    datagrams: Option<SocketAddr>,
    handle: Handle<P>,
    networks: Vec<Core<P, S>>,
    allocator: Option<(Box<dyn leeward_allocation::Allocator>, CoreLimits)>,
    /// The controller's fast halves that no network has.
    halves: Vec<Box<dyn Admission>>,
}

/// Setters that every server's builder has. Use it inside the builder's `impl`; the builder's field
/// `port` is a [`Config`](crate::Config).
#[macro_export]
macro_rules! server_settings {
    () => {
        /// Sets the admission controller and its parameters.
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

        /// Sets the number of cores (at least one).
        #[must_use]
        pub fn cores(mut self, cores: usize) -> Self {
            self.port.options.cores = cores.clamp(1, 1024);
            self
        }

        /// Lets `policy` grant and revoke cores, between `fewest` and the number that `cores` sets.
        /// At least one core, the first, always stays. The admission controller knows of the
        /// allocator. A parked core's CPU is free for other programs, and the first core reads its
        /// connections meanwhile.
        ///
        /// Parameters of the policy that are not set take [`leeward_engine::allocation::DEFAULTS`]:
        /// an operating system resumes threads more slowly than the simulator resumes cores.
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

        /// Pins the cores to these CPUs in turn. Without CPUs the system places them.
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

        /// Sets the maximum number of open connections.
        #[must_use]
        pub fn connection_limit(mut self, connections: usize) -> Self {
            self.port.limits.connections = connections;
            self
        }

        /// Sets the budget of a request that brings none, for queues, cores and locks. Unlimited
        /// unless set. The request's wait since its packet arrived is subtracted before it runs.
        /// Its later waits for locks ([`leeward_runtime::locks`]) are subtracted as they occur.
        ///
        /// The wait for credit at the client is unknown here, so leave room for it: the client
        /// half's longest delay, such as `auto`'s objective less its target.
        #[must_use]
        pub fn budget(mut self, budget: leeward_core::budget::Budget) -> Self {
            self.port.limits.budget = budget;
            self
        }

        /// Sets the bytes that may wait for a peer. While more wait, the core neither reads nor
        /// runs the peer's requests. While the peer's socket is full and a response above 16 KiB
        /// waits, the limit is 64 KiB. It is also 64 KiB while more than half of the [memory for
        /// responses](Self::sending_limit) is used.
        #[must_use]
        pub fn unsent_limit(mut self, bytes: usize) -> Self {
            self.port.limits.unsent = bytes;
            self
        }

        /// Sets the memory, in bytes, for incoming requests that exceed a connection's own buffer
        /// of 16 KiB. All connections share it, in equal parts per core. While it is used up, long
        /// requests of other connections are not read. A client that doesn't continue its long
        /// request within seconds is disconnected.
        #[must_use]
        pub fn receiving_limit(mut self, bytes: usize) -> Self {
            self.port.limits.receive_memory = bytes;
            self
        }

        /// Sets the memory, in bytes, for responses that were not taken. All connections share it,
        /// in equal parts per core. While it is used up, only connections that take their responses
        /// are read, and those that take nothing for half a second are closed. While twice as much
        /// is used, no connection is read. With memcached's protocol these limits apply to long
        /// responses only.
        #[must_use]
        pub fn sending_limit(mut self, bytes: usize) -> Self {
            self.port.limits.send_memory = bytes;
            self
        }

        /// Sets how long a stop waits for requests in flight before it abandons them.
        #[must_use]
        pub fn drain(mut self, timeout: leeward_core::units::Nanos) -> Self {
            self.port.limits.drain_timeout = timeout;
            self
        }

        /// Sets whether a core may read and write several sockets in one io_uring call. Allowed
        /// unless set. The server works without it where the kernel lacks or forbids it.
        #[must_use]
        pub fn io_uring(mut self, io_uring: $crate::IoUring) -> Self {
            self.port.limits.io_uring = io_uring;
            self
        }

        /// Makes core `core` (counted from 0, modulo the number of cores) poll an event source
        /// besides its connections, for example an `rpc` client made by `build_polled`. The source
        /// is dropped when the server has stopped.
        #[must_use]
        pub fn poll_also(self, core: usize, source: impl $crate::EventSource + 'static) -> Self {
            self.port.event_sources.add(core, Box::new(source));
            self
        }

        /// Accepts from a socket that listens already, instead of from the server's address.
        #[must_use]
        pub fn inherited(mut self, socket: $crate::InheritedListener) -> Self {
            self.port.inherited = socket;
            self
        }

        /// Observes the server: waits and decisions, for metrics and explanations of rejections.
        /// Costs some nanoseconds per request and 4 MiB.
        #[must_use]
        pub fn watched(mut self, watched: bool) -> Self {
            self.port.watched = watched;
            self
        }

        /// Enables shadow mode: the controller decides on the shadow queue that enforced rejections
        /// would leave. Rejections are enforced for `percent` of 100 tenants (connections, without
        /// tenants); 0: for none. Clients get no credits and no thresholds meanwhile. All cores
        /// decide under one mutex. Requires a fixed number of cores that execute requests
        /// themselves.
        #[must_use]
        pub fn rehearse(mut self, percent: u8) -> Self {
            self.port.shadow_percent = Some(percent.min(100));
            self
        }

        /// Records the controller's calls and decisions, for `leeward replay`. See
        /// [`leeward_host::Recording`] for the cost.
        #[must_use]
        pub fn record(mut self, recording: &leeward_host::Recording) -> Self {
            self.port.recording = Some(recording.clone());
            self
        }
    };
}
