//! Starts a tier, observes it, changes its threading model and stops it.

use super::backend_credits::{BackendCredits, LeafCounts};
use super::governor::Governor;
use super::leaves::{Leaves, Links, Settings};
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
use leeward_engine::statistics::{Statistics, TierReport, TierStatistics};
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

/// Maximum number of shards in async setups; further response threads share them.
const SHARDS_MAX: u16 = 16;

/// Error that prevents a tier from starting or switching.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The server fails to start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The leaves' controller rejects its parameters.
    #[error("the leaves' controller: {0}")]
    Params(#[from] ParamError),
    /// A client of a leaf can't be built; with the reason.
    #[error("a client of a leaf: {0}")]
    Client(String),
    /// The validator rejects a leaf; with the reason.
    #[error("{0}")]
    WrongLeaf(String),
    /// The setup needs more threads than the tier has.
    #[error("{setup} needs {needed} threads; accepted: up to {most}")]
    Threads {
        /// The setup.
        setup: Setup,
        /// Threads that the setup needs.
        needed: u32,
        /// Threads that the tier has.
        most: u32,
    },
    /// A running tier can't switch between cores and setups.
    #[error("a tier that runs {running} can't change to {asked}; accepted: changes between setups, without CORE")]
    Kind {
        /// Requested model.
        asked: ThreadingSetup,
        /// Current model.
        running: ThreadingSetup,
    },
}

impl From<io::Error> for TierError {
    fn from(error: io::Error) -> Self {
        TierError::Server(error.into())
    }
}

/// Options of a tier.
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
    /// Creates options with these leaves and an initial threading model.
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

    /// Creates options whose policy chooses the setups, for `cpus` CPUs.
    pub fn with_policy(leaves: Leaves, policy: Box<dyn ThreadingPolicy>, cpus: u16) -> Self {
        let most = policy.choices().iter().map(ThreadingSetup::threads).max();
        Options { max_threads: most, cpus, ..Options::new(leaves, policy.initial()) }.set_policy(policy)
    }

    fn set_policy(mut self, policy: Box<dyn ThreadingPolicy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Adds the factory's policy, unless the options have one.
    pub(super) fn or_policy(self, factory: Option<&PolicyFactory>) -> Self {
        match factory {
            Some(factory) if self.policy.is_none() => {
                let (policy, cpus) = factory.policy();
                let most = policy.choices().iter().map(ThreadingSetup::threads).max().max(self.max_threads);
                Options { max_threads: most, cpus, threading: policy.initial(), policy: Some(policy), ..self }
            }
            _ => self,
        }
    }

    /// Sets the largest number of threads that any setup of this tier may need. Default: that of
    /// the first setup.
    ///
    /// The tier starts as many threads and two more, and parks idle ones.
    #[must_use]
    pub fn max_threads(mut self, most: u32) -> Self {
        self.max_threads = Some(most);
        self
    }

    /// Calls `observer` with the argument of each request, in the order in which threads take
    /// requests.
    ///
    /// For tests: threads take requests one at a time then, which is slower.
    #[must_use]
    pub fn observe(mut self, observer: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the seed of random choices (jitter of connections, choices of controllers).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// Counters of unusual calls, over all threads of a tier.
#[derive(Debug, Default)]
pub(super) struct FanoutCounters {
    pub(super) late: AtomicU64,
    pub(super) hedged: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) partial: AtomicU64,
    pub(super) credits: BackendCredits,
}

/// Counters of a tier's requests and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Steps that called leaves.
    pub gathers: u64,
    /// Calls to leaves.
    pub calls: u64,
    /// Requests of async setups that wait for leaves.
    pub waiting: u64,
    /// Replies that arrived after their request had continued.
    pub late: u64,
    /// Calls that were repeated because they took long.
    pub hedged: u64,
    /// Calls that were repeated because a leaf rejected them.
    pub retried: u64,
    /// Calls that were cancelled because enough replies had arrived.
    pub cancelled: u64,
    /// Requests that continued with fewer results than they asked for.
    pub partial: u64,
    /// Open connections of async setups.
    pub connected: u64,
    /// Changes of setup.
    pub switches: u64,
    /// System errors while opening or polling connections.
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

    /// Switch of the threading model.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Converts into the server, for callers that don't change the model or have a [`Switch`].
    pub fn into_server(self) -> Server {
        self.server
    }

    /// Stops the tier: it accepts no more connections and calls, and sends the responses that it
    /// owes. Returns the final counts of requests.
    ///
    /// # Errors
    /// A thread has ended early: its error.
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

/// Changes the threading model of a running tier, from any thread. Clones share the tier.
#[derive(Clone)]
pub struct Switch(pub(super) Arc<dyn Switchable>);

/// A running tier with any service.
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
    /// Current threading model.
    pub fn threading(&self) -> ThreadingSetup {
        self.0.threading()
    }

    /// Changes the setup. Requests in progress end under their old setup.
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

    /// Numbers of threads by activity; `None` for cores.
    pub fn thread_counts(&self) -> Option<ThreadCounts> {
        self.0.thread_counts()
    }

    /// Gauges of the policy; `None` without one.
    pub fn gauges(&self) -> Option<ThreadGauges> {
        self.0.gauges()
    }

    /// Counters of requests and calls so far.
    pub fn counts(&self) -> TierCounts {
        self.0.counts()
    }

    /// Leaves in the order of the list, each by its first address.
    pub fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)> {
        self.0.leaves()
    }
}

struct RunningTier<M: MidTier> {
    runtime: Arc<Duties<M>>,
    thread_pool: ThreadPool,
    /// CPUs that the thread pool may use.
    cpus: u64,
}

/// The part of a running tier that outlives its server.
struct TierHandle<M: MidTier> {
    runtime: Arc<Duties<M>>,
    max_threads: u32,
}

/// Starts a tier with a thread pool.
pub(super) fn start<M: MidTier>(
    builder: Builder,
    address: &str,
    options: Options,
    setup: Setup,
    service: M,
) -> Result<Tier, TierError> {
    let (mut port, payload) = builder.into_parts();
    let max = options.max_threads.unwrap_or(0).max(setup.threads()).min(u32::from(u16::MAX) - 2);
    check(&setup, max)?;
    let settings = Arc::new(options.leaves.0.with_objective(port.slo));
    // Check the parameters once here: a later failure would look like an unreachable leaf.
    let _ = settings.parts()?;
    let fanout =
        Arc::new(FanoutCounters { credits: BackendCredits::new(settings.leaves.len()), ..FanoutCounters::default() });
    port.tier = tier_report(&settings, &fanout);
    let cpus = port.options.cpus.clone();
    let count_of_cpus = port.options.cores as u64;
    let slo = port.slo;
    let ring = options.policy.is_some().then(|| Arc::new(ArrivalRing::new()));
    let cancels = Arc::default();
    let execute = || ExternalExecutor { arrivals: ring.clone() };
    let driver = port.start_event_loop(address, |handle| Rpc::new(execute(), handle.clone(), payload, &cancels))?;
    let governor = options.policy.zip(ring).map(|(policy, ring)| Governor::new(policy, ring, options.cpus, slo));
    let clock = driver.handle().shared().clock.clone();
    let threads = pool_size(max);
    let alarms: Arc<[ThreadWaker]> = (0..threads).map(|_| ThreadWaker::new()).collect::<io::Result<_>>()?;
    let wakers = Arc::clone(&alarms);
    let control = Arc::new(PoolControl::new(threads, &setup, move |thread| wakers[thread].wake()));
    let count = match settings.links {
        Links::Shared => 1,
        Links::Sharded => u32::from(SHARDS_MAX).min(max).max(1),
    };
    let shard = |index: u32| {
        let shard = Shard::new(&settings, &clock, options.seed ^ (u64::from(index) << 32), &fanout);
        shard.map(|shard| SharedShard::new(shard.with_index(index as usize)))
    };
    let shards = (0..count).map(shard).collect::<io::Result<Vec<_>>>()?;
    let tier_runtime = Arc::new(Duties {
        event_loop: driver,
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
        fanout_counters: Arc::clone(&fanout),
        seed: options.seed,
        observer: options.observer.map(Mutex::new),
        governor,
        gathering: AtomicUsize::new(0),
        watched_at: AtomicU64::new(0),
        watched_requests: AtomicU64::new(0),
        cpu_ns: AtomicU64::new(0),
    });
    let pool = ThreadPool::start(&control, &tier_runtime, &clock, &cpus)?;
    let switch = TierHandle::switch(&tier_runtime, max);
    let server =
        leeward_engine::Server::of(RunningTier { runtime: tier_runtime, thread_pool: pool, cpus: count_of_cpus });
    Ok(Tier::new(Server::from(server), switch))
}

fn tier_report(settings: &Arc<Settings>, fanout: &Arc<FanoutCounters>) -> TierReport {
    let (settings, fanout) = (Arc::clone(settings), Arc::clone(fanout));
    TierReport::new(move || {
        let counts = fanout.credits.leaf_counts();
        let leaves = settings.first_addresses().zip(counts.iter().map(|leaf| leaf.connections));
        tier_statistics(leaves, &fanout.partial)
    })
}

/// Statistics of a tier whose leaves have these addresses and numbers of connections.
pub(super) fn tier_statistics(leaves: impl Iterator<Item = (SocketAddr, u64)>, partial: &AtomicU64) -> TierStatistics {
    let mut statistics = TierStatistics { partial: partial.load(Ordering::Relaxed), ..TierStatistics::default() };
    for (address, connections) in leaves {
        statistics.leaves += 1;
        if connections == 0 {
            statistics.away.push(address.to_string());
        }
    }
    statistics
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
        let WorkCounters { gathers, calls, system_errors: errors } = &self.runtime.counts;
        let FanoutCounters { late, hedged, retried, cancelled, partial, .. } = &*self.runtime.fanout_counters;
        let mut counts = TierCounts {
            gathers: gathers.load(Ordering::Relaxed),
            calls: calls.load(Ordering::Relaxed),
            system_errors: errors.load(Ordering::Relaxed),
            late: late.load(Ordering::Relaxed),
            hedged: hedged.load(Ordering::Relaxed),
            retried: retried.load(Ordering::Relaxed),
            cancelled: cancelled.load(Ordering::Relaxed),
            partial: partial.load(Ordering::Relaxed),
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
        let addresses = self.runtime.settings.first_addresses();
        addresses.zip(self.runtime.fanout_counters.credits.leaf_counts()).collect()
    }
}

impl<M: MidTier> TierHandle<M> {
    fn switch(tier_runtime: &Arc<Duties<M>>, most: u32) -> Switch {
        Switch(Arc::new(TierHandle { runtime: Arc::clone(tier_runtime), max_threads: most }))
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
        // The pool has as many CPUs as the server was given; CPU time that its threads have not
        // used was idle.
        let available = Nanos(self.runtime.clock.now().0.saturating_mul(self.cpus));
        available.saturating_sub(Nanos(self.runtime.cpu_ns.load(Ordering::Relaxed)))
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
        let RunningTier { runtime: tier_runtime, thread_pool: pool, cpus: _ } = *self;
        tier_runtime.event_loop.stop();
        tier_runtime.control.stop();
        pool.join()?;
        for shared in &tier_runtime.shards {
            shared.lock().leave();
        }
        tier_runtime.event_loop.handle().shared().close();
        tier_runtime.event_loop.outcome()?;
        Ok(tier_runtime.event_loop.handle().counts())
    }
}
