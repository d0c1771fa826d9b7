//! Starting a tier, looking at it, changing its threading model, stopping it.

use super::backend_credits::{BackendCredits, LeafCounts};
use super::governor::Governor;
use super::leaves::{Leaves, Links};
use super::policy_factory::PolicyFactory;
use super::pool::Pool;
use super::runtime::{Observer, SharedShard, TierRuntime as Duties, WorkCounters};
use super::service::MidTier;
use super::shard::Shard;
use super::source::TierSource;
use crate::server::executor::ExternalExecutor;
use crate::server::protocol::Rpc;
use crate::server::{Builder, Server, ServerError};
use leeward_core::params::ParamError;
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_engine::statistics::Statistics;
use leeward_engine::wait::ThreadWaker;
use leeward_engine::{RunningServer, Source};
use leeward_runtime::CoreUsage;
use leeward_runtime::thread_pool::{PoolControl, ThreadCounts, ThreadPool, pool_size};
use leeward_threading::{ArrivalRing, Setup, ThreadGauges, ThreadingPolicy, ThreadingSetup};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Sets of connections that async setups share, at most: response threads beyond them look at the same ones.
const SHARDS_MAX: u16 = 16;

/// A tier that can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The leaves' controller refuses its parameters.
    #[error("the leaves' controller: {0}")]
    Params(#[from] ParamError),
    /// A client of a leaf can't be made; in words.
    #[error("a client of a leaf: {0}")]
    Client(String),
    /// A leaf is not the one that the service needs; in words.
    #[error("{0}")]
    WrongLeaf(String),
    /// The setup needs more threads than the tier shall have.
    #[error("{setup} needs {needed} threads; accepted: up to {most}")]
    Threads {
        /// The setup.
        setup: Setup,
        /// Threads that it needs.
        needed: u32,
        /// Threads that there may be.
        most: u32,
    },
    /// Cores of today's server can't become threads of a model while it runs, nor the other way round.
    #[error("{asked} while {running} runs; accepted: setups instead of setups")]
    Kind {
        /// Model that was asked for.
        asked: ThreadingSetup,
        /// Model that runs.
        running: ThreadingSetup,
    },
}

impl From<io::Error> for TierError {
    fn from(error: io::Error) -> Self {
        TierError::Server(error.into())
    }
}

/// How a tier works.
pub struct Options {
    pub(super) leaves: Leaves,
    pub(super) threading: ThreadingSetup,
    pub(super) max_threads: Option<u32>,
    pub(super) seed: u64,
    pub(super) observer: Option<Observer>,
    pub(super) policy: Option<Box<dyn ThreadingPolicy>>,
    pub(super) cpus: u16,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("leaves", &self.leaves)
            .field("threading", &self.threading)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Asks these leaves, at first with this threading model.
    pub fn new(leaves: Leaves, threading: impl Into<ThreadingSetup>) -> Self {
        Options {
            leaves,
            threading: threading.into(),
            max_threads: None,
            seed: 1,
            observer: None,
            policy: None,
            cpus: 1,
        }
    }

    /// Asks these leaves, with whatever setups the policy wants, on so many CPUs.
    pub fn with_policy(leaves: Leaves, policy: Box<dyn ThreadingPolicy>, cpus: u16) -> Self {
        let most = policy.choices().iter().map(ThreadingSetup::threads).max();
        Options { max_threads: most, cpus, ..Options::new(leaves, policy.initial()) }.set_policy(policy)
    }

    fn set_policy(mut self, policy: Box<dyn ThreadingPolicy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The same with a policy, unless there is one.
    pub(super) fn or_policy(self, governed: Option<&PolicyFactory>) -> Self {
        match governed {
            Some(governed) if self.policy.is_none() => {
                let (policy, cpus) = governed.policy();
                let most = policy.choices().iter().map(ThreadingSetup::threads).max().max(self.max_threads);
                Options { max_threads: most, cpus, threading: policy.initial(), policy: Some(policy), ..self }
            }
            _ => self,
        }
    }

    /// Threads that any setup of this tier may need, at most: as many and two more are there from the start, and parked while they have
    /// nothing to do. Default: those of the first setup.
    #[must_use]
    pub fn max_threads(mut self, most: u32) -> Self {
        self.max_threads = Some(most);
        self
    }

    /// Has the argument of each request told in the order in which threads take them, one at a time: for tests, which it slows down.
    #[must_use]
    pub fn observe(mut self, observer: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Where the tier's chances (jitter of connections, choices of controllers) begin.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// Counts of calls that did not go the plain way, over all threads of a tier.
#[derive(Debug, Default)]
pub(super) struct FanoutCounters {
    pub(super) late: AtomicU64,
    pub(super) hedged: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) credits: BackendCredits,
}

/// Requests of a tier and their calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Steps that asked leaves.
    pub gathers: u64,
    /// Calls of leaves.
    pub calls: u64,
    /// Requests of async setups that wait for leaves.
    pub waiting: u64,
    /// Replies that came after their request had gone on.
    pub late: u64,
    /// Calls that were made again because they took long.
    pub hedged: u64,
    /// Calls that were made again because they were rejected.
    pub retried: u64,
    /// Calls that were given up because enough had come.
    pub cancelled: u64,
    /// Connections of async setups that are there.
    pub connected: u64,
    /// Changes of setup.
    pub switches: u64,
    /// Times that the system refused what connections need.
    pub system_errors: u64,
}

/// A running tier. Dropping it does not stop it: see [`Tier::stop`].
pub struct Tier {
    server: Server,
    switch: Switch,
}

impl Tier {
    pub(super) fn new(server: Server, switch: Switch) -> Self {
        Tier { server, switch }
    }

    /// Switch that changes its threading model.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The server, for those who don't change its model, or have a [`Switch`].
    pub fn into_server(self) -> Server {
        self.server
    }

    /// Takes no more connections and calls, sends the answers that it owes, and ends. Returns what became of all requests.
    ///
    /// # Errors
    /// What made a thread end before its time.
    pub fn stop(self) -> io::Result<leeward_host::RequestCounts> {
        self.server.stop()
    }
}

impl Deref for Tier {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Changes the threading model of a running tier, from any thread. Clones are the same one.
#[derive(Clone)]
pub struct Switch(pub(super) Arc<dyn Switchable>);

/// A running tier, whatever its service.
pub(super) trait Switchable: Send + Sync {
    fn threading(&self) -> ThreadingSetup;
    fn change(&self, setup: &Setup) -> Result<(), TierError>;
    fn thread_counts(&self) -> Option<ThreadCounts>;
    fn gauges(&self) -> Option<ThreadGauges> {
        None
    }
    fn counts(&self) -> TierCounts;
    fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)>;
}

impl Switch {
    /// The model that holds.
    pub fn threading(&self) -> ThreadingSetup {
        self.0.threading()
    }

    /// Changes the setup. Requests under way end as they began.
    ///
    /// # Errors
    /// The setup needs more threads than the tier has, or the tier runs on cores.
    pub fn change(&self, threading: impl Into<ThreadingSetup>) -> Result<(), TierError> {
        match threading.into() {
            ThreadingSetup::Setup(setup) => self.0.change(&setup),
            asked if asked == self.threading() => Ok(()),
            asked => Err(TierError::Kind { asked, running: self.threading() }),
        }
    }

    /// Counts of threads by what they do; `None` for cores.
    pub fn thread_counts(&self) -> Option<ThreadCounts> {
        self.0.thread_counts()
    }

    /// State of the policy; `None` without one.
    pub fn gauges(&self) -> Option<ThreadGauges> {
        self.0.gauges()
    }

    /// Requests and calls so far.
    pub fn counts(&self) -> TierCounts {
        self.0.counts()
    }

    /// The leaves in their order, by the first address of each.
    pub fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)> {
        self.0.leaves()
    }
}

struct RunningTier<M: MidTier> {
    runtime: Arc<Duties<M>>,
    thread_pool: ThreadPool,
    /// CPUs that the crew may use.
    cpus: u64,
}

/// The part of a running tier that outlives its server.
struct TierHandle<M: MidTier> {
    runtime: Arc<Duties<M>>,
    max_threads: u32,
}

/// Starts a tier with a crew.
pub(super) fn start<M: MidTier>(
    builder: Builder,
    address: &str,
    options: Options,
    setup: Setup,
    service: M,
) -> Result<Tier, TierError> {
    let (port, payload) = builder.into_parts();
    let most = options.max_threads.unwrap_or(0).max(setup.threads()).min(u32::from(u16::MAX) - 2);
    check(&setup, most)?;
    let settings = Arc::new(options.leaves.0.with_objective(port.slo));
    // Asked once here: a connection that could not be made later would be an unreachable leaf.
    let _ = settings.parts()?;
    let cpus = port.options.cpus.clone();
    let count_of_cpus = port.options.cores as u64;
    let slo = port.slo;
    let ring = options.policy.is_some().then(|| Arc::new(ArrivalRing::new()));
    let cancels = Arc::default();
    let execute = || ExternalExecutor { arrivals: ring.clone() };
    let front = port.start_event_loop(address, |handle| Rpc::new(execute(), handle.clone(), payload, &cancels))?;
    let governor = options.policy.zip(ring).map(|(policy, ring)| Governor::new(policy, ring, options.cpus, slo));
    let clock = front.handle().shared().clock.clone();
    let threads = pool_size(most);
    let alarms: Arc<[ThreadWaker]> = (0..threads).map(|_| ThreadWaker::new()).collect::<io::Result<_>>()?;
    let rung = Arc::clone(&alarms);
    let control = Arc::new(PoolControl::new(threads, &setup, move |thread| rung[thread].wake()));
    let count = match settings.links {
        Links::Shared => 1,
        Links::Sharded => u32::from(SHARDS_MAX).min(most).max(1),
    };
    let fan_out =
        Arc::new(FanoutCounters { credits: BackendCredits::new(settings.leaves.len()), ..FanoutCounters::default() });
    let shard = |index: u32| {
        let shard = Shard::new(&settings, &clock, options.seed ^ (u64::from(index) << 32), &fan_out);
        shard.map(|shard| SharedShard::new(shard.with_index(index as usize)))
    };
    let shards = (0..count).map(shard).collect::<io::Result<Vec<_>>>()?;
    let duties = Arc::new(Duties {
        event_loop: front,
        cancels: Arc::clone(&cancels),
        control: Arc::clone(&control),
        service,
        settings,
        objective: slo,
        clock: clock.clone(),
        alarms,
        shards,
        pool: Pool::new(),
        counts: WorkCounters::default(),
        fanout_counters: Arc::clone(&fan_out),
        seed: options.seed,
        observer: options.observer.map(Mutex::new),
        governor,
        gathering: AtomicUsize::new(0),
        cpu_ns: AtomicU64::new(0),
    });
    let crew = ThreadPool::start(&control, &duties, &clock, &cpus)?;
    let switch = TierHandle::switch(&duties, most);
    let server = leeward_engine::Server::of(RunningTier { runtime: duties, thread_pool: crew, cpus: count_of_cpus });
    Ok(Tier::new(Server::from(server), switch))
}

fn check(setup: &Setup, most: u32) -> Result<(), TierError> {
    let needed = setup.threads();
    if needed > most { Err(TierError::Threads { setup: *setup, needed, most }) } else { Ok(()) }
}

impl<M: MidTier> Switchable for TierHandle<M> {
    fn threading(&self) -> ThreadingSetup {
        ThreadingSetup::Setup(self.runtime.control.setup())
    }

    fn change(&self, setup: &Setup) -> Result<(), TierError> {
        check(setup, self.max_threads)?;
        self.runtime.control.switch_setup(setup);
        Ok(())
    }

    fn thread_counts(&self) -> Option<ThreadCounts> {
        Some(self.runtime.control.thread_counts())
    }

    fn gauges(&self) -> Option<ThreadGauges> {
        self.runtime.governor.as_ref().map(Governor::gauges)
    }

    fn counts(&self) -> TierCounts {
        let WorkCounters { gathers, calls, system_errors: broken } = &self.runtime.counts;
        let FanoutCounters { late, hedged, retried, cancelled, .. } = &*self.runtime.fanout_counters;
        let mut counts = TierCounts {
            gathers: gathers.load(Ordering::Relaxed),
            calls: calls.load(Ordering::Relaxed),
            system_errors: broken.load(Ordering::Relaxed),
            late: late.load(Ordering::Relaxed),
            hedged: hedged.load(Ordering::Relaxed),
            retried: retried.load(Ordering::Relaxed),
            cancelled: cancelled.load(Ordering::Relaxed),
            switches: self.runtime.control.switches(),
            ..TierCounts::default()
        };
        for shared in &self.runtime.shards {
            let shard = shared.lock();
            counts.waiting += shard.waiting() as u64;
            counts.connected += shard.up_count() as u64;
        }
        counts
    }

    fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)> {
        let leaves = &self.runtime.settings.leaves;
        let addresses = leaves.iter().filter_map(|leaf| leaf.addresses.first().copied());
        addresses.zip(self.runtime.fanout_counters.credits.leaf_counts()).collect()
    }
}

impl<M: MidTier> TierHandle<M> {
    fn switch(duties: &Arc<Duties<M>>, most: u32) -> Switch {
        Switch(Arc::new(TierHandle { runtime: Arc::clone(duties), max_threads: most }))
    }
}

impl<M: MidTier> RunningServer for RunningTier<M> {
    fn address(&self) -> SocketAddr {
        self.runtime.event_loop.address()
    }

    fn counts(&self) -> leeward_host::RequestCounts {
        self.runtime.event_loop.handle().counts()
    }

    fn gauges(&self) -> Gauges {
        self.runtime.event_loop.handle().gauges()
    }

    fn delay(&self) -> Nanos {
        self.runtime.event_loop.handle().delay()
    }

    fn idle(&self) -> Nanos {
        // The crew has as many CPUs as the server was given; what its threads have not used of them was idle.
        let had = Nanos(self.runtime.clock.now().0.saturating_mul(self.cpus));
        had.saturating_sub(Nanos(self.runtime.cpu_ns.load(Ordering::Relaxed)))
    }

    fn core_usage(&self) -> Option<CoreUsage> {
        None
    }

    fn statistics(&self) -> Statistics {
        let cores = u64::from(self.runtime.control.setup().threads());
        Statistics { cores, ..self.runtime.event_loop.handle().statistics() }
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        let switch = TierHandle::switch(&self.runtime, 0);
        Some(TierSource::around(self.runtime.event_loop.handle().source()?, switch))
    }

    fn has_failed(&self) -> bool {
        self.runtime.control.is_stopping() || self.runtime.event_loop.has_failed()
    }

    fn stop(self: Box<Self>) -> io::Result<leeward_host::RequestCounts> {
        let RunningTier { runtime: duties, thread_pool: crew, cpus: _ } = *self;
        duties.event_loop.stop();
        duties.control.stop();
        crew.join()?;
        for shared in &duties.shards {
            shared.lock().leave();
        }
        duties.event_loop.handle().shared().close();
        duties.event_loop.outcome()?;
        Ok(duties.event_loop.handle().counts())
    }
}
