//! Tiers on this machine: the simulator's description of a tier, served by a thread pool, with its
//! leaves in this process. The leaves wait instead of computing: they need no CPUs of their own,
//! and the measurement shows the tier's threads. Does not contain the measurement of requests
//! ([`crate::run`]).

use crate::error::RealError;
use crate::placement::Placement;
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_engine::statistics::Statistics;
use leeward_engine::{RunningServer, Server as Port, Source};
use leeward_rpc::server::{Builder, HandlerError, InheritedListener, Request, RequestCounts, Server, ServerError};
use leeward_rpc::tier::{
    Calls, GatherCondition, LeafId, Leaves, Links, MidTier, Options, Replies, Reply, Step, Switch,
};
use leeward_rpc::wire::Method;
use leeward_runtime::{Clock, CoreUsage, IdlePolicy};
use leeward_services::backend::{Backend, Bottleneck, InProcessService};
use leeward_services::wait::WaitBackend;
use leeward_sim::threads::model::{LeafSelection, Sharing, TailModel, Tier as Model};
use leeward_threading::{ThreadEnvironment, registry};
use leeward_workload::ServiceTime;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest CPU time that a request may ask for. A mistake in units then blocks a CPU for at most
/// this time.
const MAX_SERVICE_TIME: Nanos = Nanos::from_secs(1);

/// Every address of this machine, and any port.
const ANY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Connections that may wait for acceptance; each thread of a tier makes one to each leaf.
const BACKLOG: i32 = 1_024;

/// A tier of the simulator's model, served on this machine.
pub struct RealTier {
    model: Model,
    placement: Placement,
    slo: Nanos,
    /// The tier's switch while it is served.
    switch: Mutex<Option<Switch>>,
}

impl RealTier {
    /// Makes a tier on the CPUs of `placement`: its threads on the server's CPUs, its leaves on the
    /// clients'.
    ///
    /// # Errors
    ///
    /// [`RealError::Tier`]: the model has a feature that a real tier lacks.
    pub fn new(model: &Model, placement: &Placement, slo: Nanos) -> Result<Self, RealError> {
        let reject = |reason: &str| Err(RealError::Tier(reason.into()));
        if model.front == Sharing::Sharded && model.threading.setup().is_some_and(|setup| setup.network > 1) {
            return reject(
                "`front = \"sharded\"` with several network threads; accepted: `shared`, the only one that a real tier has",
            );
        }
        if model.gather == leeward_sim::threads::model::Gather::ForkJoin {
            return reject("`gather = \"fork-join\"`; accepted: `own`, the only one that a real tier has");
        }
        if model.leaves.tails != TailModel::default() {
            return reject(
                "leaves with `copies`, `slow` or `drops_after`; accepted: none of these, a real tier's leaves here answer once and in time",
            );
        }
        if let Some(policy) = &model.policy
            && let Err(error) = registry::find(&policy.name)
        {
            return Err(RealError::Tier(error.to_string()));
        }
        Ok(RealTier { model: model.clone(), placement: placement.clone(), slo, switch: Mutex::new(None) })
    }

    /// Service for a run: each request carries its drawn CPU time before the calls.
    pub fn into_service(self: Arc<Self>) -> InProcessService {
        InProcessService { backend: self, generator: None, description: None, bottleneck: Bottleneck::Threads }
    }

    /// Switch of the tier that was started last.
    pub fn switch(&self) -> Option<Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the tier alone; its leaves already run.
    fn start_tier(&self, builder: Builder, address: &str, leaves: &Server) -> Result<Server, ServerError> {
        let model = &self.model.leaves;
        let links = if self.model.links == Sharing::Shared { Links::Shared } else { Links::Sharded };
        let addresses = (1..=model.count).map(|leaf| leaf_address(leaves, leaf).to_string());
        let leaves = Leaves::resolve(addresses).map_err(server_error)?.links(links);
        let service = FanOutService {
            clock: Clock::start(),
            selection: model.selection,
            resume: self.model.resume,
            rng_state: AtomicU64::new(1),
        };
        let options = self.options(leaves)?;
        let started =
            with_affinity(&self.placement.server, || builder.cpus(Vec::new()).start_tier(address, options, service));
        let tier = started.map_err(server_error)?;
        *self.switch.lock().unwrap_or_else(PoisonError::into_inner) = Some(tier.switch().clone());
        Ok(tier.into_server())
    }

    fn options(&self, leaves: Leaves) -> Result<Options, ServerError> {
        let cpus = self.placement.server.len() as u16;
        let Some(policy) = &self.model.policy else { return Ok(Options::new(leaves, self.model.threading)) };
        let environment = ThreadEnvironment::new(policy.curves.clone(), self.model.threading, cpus).with_slo(self.slo);
        let spec = registry::find(&policy.name).map_err(server_error)?;
        Ok(Options::with_policy(leaves, spec.build(&policy.params, &environment)?, cpus))
    }
}

impl Backend for RealTier {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let leaves = start_waiting_leaves(&self.model.leaves.service, self.placement.load)?;
        match self.start_tier(builder, address, &leaves) {
            Ok(tier) => Ok(Port::of(TierWithLeaves { tier, leaves }).into()),
            Err(error) => {
                // The tier's error is returned; an error of the leaves' end adds nothing.
                let _ = leaves.stop();
                Err(error)
            }
        }
    }
}

/// Converts the error of a tier's part to a server error.
fn server_error(error: impl std::fmt::Display) -> ServerError {
    ServerError::Cores(io::Error::other(error.to_string()))
}

/// Starts waiting leaves, all served by one thread on this CPU. With one thread per leaf, calls
/// would cost wake-ups there.
pub(crate) fn start_waiting_leaves(times: &ServiceTime, cpu: usize) -> Result<Server, ServerError> {
    let backend = WaitBackend { times: times.clone() };
    let socket = InheritedListener::new(bind_loopback().map_err(ServerError::Cores)?);
    backend.start(Server::builder().idle(IdlePolicy::Block).cpus(vec![cpu]).inherited(socket), &ANY_ADDRESS.to_string())
}

/// Binds a socket at every address of this machine, reachable from this machine only.
fn bind_loopback() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind_device(Some(b"lo"))?;
    socket.bind(&ANY_ADDRESS.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Address of the leaf with this number, from 1. Every address of the loopback network belongs to
/// this machine.
fn leaf_address(server: &Server, leaf: u16) -> SocketAddr {
    let [high, low] = leaf.to_be_bytes();
    SocketAddr::from(([127, 0, high, low], server.address().port()))
}

/// Runs `start` on these CPUs. Threads inherit the affinity of their parent, so each thread of the
/// pool may run on any of them.
pub(crate) fn with_affinity<T>(cpus: &[usize], start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).ok();
    set_affinity(cpus);
    let started = start();
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    started
}

fn set_affinity(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    // Without permission, the threads run on any CPU.
    let _ = sched_setaffinity(None, &set);
}

/// A tier whose leaves end with it.
struct TierWithLeaves {
    tier: Server,
    leaves: Server,
}

impl RunningServer for TierWithLeaves {
    fn address(&self) -> SocketAddr {
        self.tier.address()
    }

    fn counts(&self) -> RequestCounts {
        self.tier.counts()
    }

    fn gauges(&self) -> Gauges {
        self.tier.gauges()
    }

    fn delay(&self) -> Nanos {
        self.tier.delay()
    }

    fn idle(&self) -> Nanos {
        self.tier.idle()
    }

    fn core_usage(&self) -> Option<CoreUsage> {
        self.tier.core_usage()
    }

    fn statistics(&self) -> Statistics {
        self.tier.statistics()
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        self.tier.source()
    }

    fn has_failed(&self) -> bool {
        self.tier.has_failed() || self.leaves.has_failed()
    }

    fn stop(self: Box<Self>) -> io::Result<RequestCounts> {
        let TierWithLeaves { tier, leaves } = *self;
        let counts = tier.stop();
        leaves.stop()?;
        counts
    }
}

/// The tier's service: computes for the request's time, calls leaves, and computes again.
struct FanOutService {
    clock: Clock,
    selection: LeafSelection,
    resume: Nanos,
    /// State of the random choice of leaves.
    rng_state: AtomicU64,
}

impl FanOutService {
    fn spin(&self, span: Nanos) {
        let began = self.clock.now();
        while self.clock.now().since(began) < span {
            std::hint::spin_loop();
        }
    }

    fn random_bits(&self) -> u64 {
        // SplitMix64: any seed will do.
        let state = self.rng_state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns the first leaf and the number of leaves from it.
    fn select_leaves(&self, leaves: usize) -> (usize, usize) {
        match self.selection {
            LeafSelection::All => (0, leaves),
            LeafSelection::Hash { replicas, writes } => {
                let bits = self.random_bits();
                let is_write = ((bits >> 11) as f64 / (1u64 << 53) as f64) < writes;
                let first = (self.random_bits() % leaves.max(1) as u64) as usize;
                (first, if is_write { usize::from(replicas).min(leaves) } else { 1 })
            }
        }
    }
}

impl MidTier for FanOutService {
    type State = ();

    fn begin(
        &self,
        request: &Request<'_>,
        (): &mut (),
        calls: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let span = request.payload.first_chunk::<8>().map_or(Nanos::ZERO, |bytes| Nanos(u64::from_le_bytes(*bytes)));
        if span > MAX_SERVICE_TIME {
            return Err(HandlerError::Message(format!("a service time of {span}; accepted: up to {MAX_SERVICE_TIME}")));
        }
        self.spin(span);
        let leaves = calls.leaves().count();
        let (first, count) = self.select_leaves(leaves);
        for step in 0..count {
            let leaf = LeafId(((first + step) % leaves.max(1)) as u16);
            calls.call(leaf, Method(0), |bytes| bytes.extend_from_slice(request.payload));
        }
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        (): &mut (),
        replies: &Replies<'_>,
        _: &mut Calls<'_>,
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if replies.iter().any(|reply| !matches!(reply, Reply::Result(_))) {
            return Err(HandlerError::Message("a leaf has not answered".into()));
        }
        self.spin(self.resume);
        Ok(Step::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{RunSpec, run};
    use leeward_core::budget::Budget;
    use leeward_core::none;
    use leeward_core::params::Params;
    use leeward_core::units::Rate;
    use leeward_sim::threads::model::{Gather, Leaves as LeavesModel, ThreadCosts};
    use leeward_workload::Segment;
    use std::sync::atomic::AtomicBool;

    fn model(threading: &str) -> Model {
        let service = ServiceTime::Constant(Nanos::from_micros(50));
        let leaves = LeavesModel {
            count: 3,
            selection: LeafSelection::All,
            service,
            servers: 1,
            per_call: Nanos::ZERO,
            host_call: Nanos::ZERO,
            rtt: Nanos::ZERO,
            tails: TailModel::default(),
        };
        Model {
            cpus: 1,
            costs: ThreadCosts::free(),
            resume: Nanos::from_micros(1),
            leaves,
            gather: Gather::Own,
            front: Sharing::Shared,
            links: Sharing::Sharded,
            threading: threading.parse().unwrap_or_else(|_| panic!("{threading}")),
            policy: None,
        }
    }

    #[test]
    fn a_tier_with_leaves_runs_like_any_server() {
        let placement = Placement::choose(1).unwrap();
        for threading in ["SIB2", "ADB1-1-1", "CORE1"] {
            let service = RealTier::new(&model(threading), &placement, Nanos::from_millis(1))
                .map(Arc::new)
                .unwrap()
                .into_service();
            let (warmup, duration) = (Nanos::from_millis(100), Nanos::from_millis(600));
            let workload = leeward_workload::Workload {
                clients: 2,
                arrivals: leeward_workload::Arrivals::Constant,
                shares: leeward_workload::Shares::Equal,
                demand: vec![Segment { from: Nanos::ZERO, rate: Rate(200.0) }],
                service: ServiceTime::Constant(Nanos(1)),
            };
            let spec = RunSpec {
                placement: &placement,
                service: &service,
                budget: Budget::UNLIMITED,
                algorithm: &none::ALGORITHM,
                params: &Params::default(),
                rtt: Nanos::from_micros(10),
                slo: Nanos::from_millis(1),
                workload: &workload,
                seed: 1,
                warmup,
                duration,
                window: Nanos::from_millis(100),
                fine_window: None,
                observers: None,
            };
            let report = run(&spec, &AtomicBool::new(false), |_| ()).unwrap();
            assert_eq!(report.violations, Vec::<String>::new(), "{threading}");
            assert!(report.server.completed > 0 && report.server.rejected == 0, "{threading}: {:?}", report.server);
        }
    }

    #[test]
    fn unsupported_tier_models_are_rejected() {
        let placement = Placement::choose(1).unwrap();
        let error_of = |model: Model| {
            RealTier::new(&model, &placement, Nanos::from_millis(1))
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert!(error_of(Model { gather: Gather::ForkJoin, ..model("SIB1") }).contains("accepted: `own`"));
        assert!(error_of(Model { front: Sharing::Sharded, ..model("SIB2") }).contains("accepted: `shared`"));
        let mut copied = model("SIB1");
        copied.leaves.tails.copies = 3;
        assert!(error_of(copied).contains("accepted: none of these"));
        assert_eq!(error_of(Model { front: Sharing::Sharded, ..model("SIB1") }), "", "one network thread has one");
    }
}
