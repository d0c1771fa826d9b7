//! Configuration of a simulation: the server, the network, the clients and the measurement.
//!
//! Plain data; the defaults are the testbed of the Breakwater paper.

use crate::threads::wakes::WakeTable;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate, Time};
use leeward_workload::service_time::ServiceTime;
use std::sync::Arc;

pub use crate::graph::model::Graph;
pub use crate::scheduling::{
    Balancing, DispatchPolicy, InitialCores, RevokePolicy, Scheduling, StealAmount, StealPolicy,
};
pub use crate::threads::model::Tier;
pub use leeward_workload::application::MAX_STEPS;
pub use leeward_workload::kinds::{CLASSES, MAX_KINDS};
pub use leeward_workload::{Application, Arrivals, Path, RequestKind, RequestKinds, Segment, Shares, Step, Workload};

/// Configuration of a single run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// The server.
    pub server: ServerModel,
    /// The network.
    pub network: NetworkModel,
    /// The clients and their requests.
    pub workload: Workload,
    /// Kinds of requests. The default has none: all requests are alike.
    pub kinds: RequestKinds,
    /// Steps of a request at the server besides computing. The default takes no locks.
    pub application: Application,
    /// How the application's locks are implemented and acquired.
    pub locks: LockModel,
    /// Behaviour of clients besides their algorithm.
    pub clients: ClientModel,
    /// Several such servers that serve together; `None`: one server.
    pub replicas: Option<Replicas>,
    /// A tier of threads and leaves that replaces the server; `None`: a server of cores.
    pub tier: Option<Box<Tier>>,
    /// A graph of services that replaces the server; `None`: one service.
    pub graph: Option<Arc<Graph>>,
    /// Percentage of clients, or of the kinds' tenants, for which rejections are enforced.
    ///
    /// Below 100 the controller runs in shadow mode and decides on the shadow queue.
    pub enforced: u8,
    /// Latency objective, counted from the request's issue. A later response is not goodput.
    pub slo: Nanos,
    /// Start of the measurement (simulated time).
    pub warmup: Nanos,
    /// End of the run (simulated time, `warmup` included).
    pub duration: Nanos,
    /// Observation of the run, which tells whether it has settled. With
    /// [`Observation::Adaptive`] it decides when the measurement begins and ends, instead of
    /// `warmup` and `duration`. `None`: nothing observes the run.
    pub stopping: Option<StoppingRule>,
    /// Width of the time series' windows; `None` for no time series.
    pub window: Option<Nanos>,
    /// Width of the fine time series (completions and goodput only); `None` for none.
    pub fine_window: Option<Nanos>,
    /// Seed of all random draws.
    pub seed: u64,
    /// Whether to check the controller's and the plant's accounting after every control period: see
    /// [`crate::RunOutcome::violations`].
    ///
    /// Each check visits every session, so it is for tests.
    pub audit: bool,
}

impl SimConfig {
    /// Whether the controller runs in shadow mode.
    pub fn is_shadow(&self) -> bool {
        self.enforced < 100
    }

    /// The testbed of Breakwater §5.1: 10 cores, 10 µs round trip, 1,000 clients of equal share,
    /// Poisson arrivals.
    ///
    /// The objective is ten times the sum of mean service time and round trip. The run is measured
    /// from 2 s to 4 s. `demand` is a multiple of [`ServerModel::capacity`].
    pub fn testbed(service: ServiceTime, demand: f64) -> Self {
        let (server, network) = (ServerModel::default(), NetworkModel::default());
        let rate = Rate(server.capacity(service.mean()).0 * demand);
        SimConfig {
            slo: (service.mean() + network.rtt) * 10,
            server,
            network,
            workload: Workload {
                clients: 1_000,
                arrivals: Arrivals::Poisson,
                shares: Shares::Equal,
                demand: vec![Segment { from: Nanos::ZERO, rate }],
                service,
            },
            kinds: RequestKinds::default(),
            application: Application::default(),
            locks: LockModel::default(),
            clients: ClientModel::default(),
            replicas: None,
            tier: None,
            graph: None,
            enforced: 100,
            warmup: Nanos::from_secs(2),
            duration: Nanos::from_secs(4),
            stopping: None,
            window: None,
            fine_window: None,
            seed: 1,
            audit: false,
        }
    }

    /// Service time of this kind's requests.
    pub fn service_of(&self, kind: u8) -> &ServiceTime {
        let own = self.kinds.0.get(usize::from(kind)).and_then(|kind| kind.service.as_ref());
        own.unwrap_or(&self.workload.service)
    }

    /// Latency objective of this kind's requests, from issue.
    pub fn objective_of(&self, kind: u8) -> Nanos {
        self.kinds.0.get(usize::from(kind)).and_then(|kind| kind.deadline).unwrap_or(self.slo)
    }

    /// The part of the configuration that a controller knows.
    pub fn environment(&self) -> Environment {
        let environment = Environment::new(self.server.cores, self.network.rtt, self.slo);
        if self.server.scheduling.is_some() { environment.with_allocator() } else { environment }
    }
}

/// Rule by which a run is observed, settles and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoppingRule {
    /// What the observation decides.
    pub observation: Observation,
    /// Width of the observed windows.
    pub window: Nanos,
    /// Least number of windows of the warm-up, and of the measurement.
    pub min_windows: u32,
    /// Least number of responses and rejections before the measurement: client halves adapt to
    /// them, so without them a run stands still, which is not the same as having settled.
    pub min_answers: u32,
    /// Bound of the warm-up. A run that needs longer is measured, and its outcome says that it had
    /// not settled.
    pub settle_within: Nanos,
    /// Bound of the measurement.
    pub measure_within: Nanos,
    /// The measurement ends when the half-width of the 95 % confidence interval of goodput is at
    /// most this share of goodput.
    pub precision: f64,
    /// Least number of responses in the measurement.
    pub min_responses: u32,
    /// Least length of a measurement: several periods of what comes again and again.
    pub least_measured: Nanos,
    /// Mean span of peaks and valleys of the arrivals; zero without bursts. An adaptive measurement
    /// of too few, or less precise than asked for, has not settled. Fixed times ignore it.
    pub burst_span: Nanos,
}

/// What the observation of a run decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// When the measurement begins and ends.
    Adaptive,
    /// Nothing: the times are fixed, and the outcome says whether the run had settled.
    FixedTimes {
        /// Start of the measurement.
        measured_from: Nanos,
        /// End of the observation: the end of the run, or the first shift of demand or server.
        until: Nanos,
    },
}

impl StoppingRule {
    /// Whether the rule decides when the measurement begins and ends.
    fn is_adaptive(&self) -> bool {
        self.observation == Observation::Adaptive
    }
}

/// The measured part of a run. [`Time::NEVER`]: not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeasuredInterval {
    pub(crate) from: Time,
    pub(crate) to: Time,
}

impl MeasuredInterval {
    /// An interval whose ends the run decides later.
    pub(crate) const UNDECIDED: MeasuredInterval = MeasuredInterval { from: Time::NEVER, to: Time::NEVER };

    /// The interval of `config`, as far as it is known before the run.
    pub(crate) fn of(config: &SimConfig) -> MeasuredInterval {
        match config.stopping {
            Some(rule) if rule.is_adaptive() => MeasuredInterval::UNDECIDED,
            _ => MeasuredInterval { from: Time::ZERO + config.warmup, to: Time::ZERO + config.duration },
        }
    }

    /// Whether the measurement has begun.
    pub(crate) fn has_begun(&self, now: Time) -> bool {
        now >= self.from
    }

    /// Part of the span from `start` to `end` within the interval, in nanoseconds.
    pub(crate) fn part(&self, start: Time, end: Time) -> u128 {
        u128::from(end.min(self.to).since(start.max(self.from)).0)
    }
}

/// Behaviour of every client besides its algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientModel {
    /// Minimum time between two requests of a client. Zero: a client sends as soon as it may.
    pub pacing: Nanos,
    /// Time after a request's issue at which the application gives up; `None`: never.
    ///
    /// A request still at the client is then not sent. A later reply is not counted, but the client
    /// keeps its credits.
    pub timeout: Option<Nanos>,
}

/// Several identical servers that don't coordinate; each client has a session at each of them.
///
/// If the first server rejects a request or grants no credit in time, the client sends it to the
/// next server (thesis §2.5.3, Fig. 2.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Number of servers, 2 to 16.
    pub servers: u32,
    /// Server to which a request is sent first.
    pub first: FirstServer,
    /// Maximum wait for a credit at each server; `None`: as long as the algorithm's client allows.
    pub credit_timeout: Option<Nanos>,
}

/// Server to which a request is sent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstServer {
    /// The first server; the others take the requests that it does not serve.
    #[default]
    Primary,
    /// Round robin: each client uses the server after the one it used last.
    InTurn,
}

impl Replicas {
    /// Maximum number of sends per request.
    pub const ATTEMPTS: u64 = 2;

    /// Objective of one server, which its controller gets: the service's divided by the number of
    /// attempts (thesis §2.4, "Target delay vs. SLO").
    pub fn objective(&self, slo: Nanos) -> Nanos {
        slo / Self::ATTEMPTS
    }
}

/// The simulated server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerModel {
    /// Cores that process packets and requests.
    pub cores: u32,
    /// CPU costs besides the service itself.
    pub costs: Costs,
    /// Savings of messages that share a read or a write; `None`: each packet is received and sent
    /// by itself, as on the papers' testbed.
    pub sockets: Option<SocketCosts>,
    /// Maximum number of packets that a core takes from its queue per step (Shenango's softirq
    /// budget is 16).
    pub batch: u32,
    /// Queue that a free core serves first.
    pub order: QueueOrder,
    /// Point at which a request's admission is decided.
    pub aqm: Aqm,
    /// When the controller's slow half runs.
    pub control: ControlTiming,
    /// Whether the controller gets a request's path as its method.
    pub methods: MethodVisibility,
    /// CPU time that a shared machine takes; `None`: none, as on the papers' testbed.
    pub stalls: Option<Stalls>,
    /// Wake-up latency of an idle core; `None`: an idle core begins at once.
    pub wake: Option<WakeTable>,
    /// Pauses of the whole process; `None`: no pauses.
    pub pauses: Option<Pauses>,
    /// CPU quota of the process; `None`: all of its cores.
    pub quota: Option<Quota>,
    /// Period in which waits without a core take longer; `None`: no such period.
    pub slow: Option<SlowPeriod>,
    /// Core allocation; `None`: all cores are permanent, and an idle core steals at once.
    pub scheduling: Option<Scheduling>,
}

/// When the controller's slow half runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlTiming {
    /// Once per period, however busy the cores are.
    #[default]
    Ideal,
    /// As a task of the server: each tick waits in the run queue, and the next is one period later.
    /// The published loop sleeps on the loaded runtime.
    Queued,
}

/// A controller's knowledge of a request's path through the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodVisibility {
    /// Each path is a method of its own, like a procedure number or a route.
    #[default]
    Paths,
    /// No method: the controller can't see whether a request needs a lock.
    Unknown,
}

/// Stalls: a shared machine takes each core away independently, at exponential intervals, for
/// exponential times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Mean time from the end of a stall to the beginning of the next.
    pub mean_interval: Nanos,
    /// Mean length of a stall.
    pub mean_length: Nanos,
}

impl Stalls {
    /// Share of time that stalls leave, 0..=1.
    pub fn available(&self) -> f64 {
        self.mean_interval.0 as f64 / (self.mean_interval + self.mean_length).0.max(1) as f64
    }
}

/// Pauses of the whole process, such as garbage collections: all cores and the control loop stop at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Time from the beginning of a pause to the beginning of the next; the first begins after one
    /// interval.
    pub interval: Nanos,
    /// Length of each pause, less than `interval`.
    pub length: Nanos,
}

/// A quota of CPU time, as containers have: once the cores have used it up, they stop until the
/// period ends (Linux, CFS bandwidth control).
///
/// A core finishes the step that it has begun, as with the kernel's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Length of a period.
    pub period: Nanos,
    /// CPU time of all cores per period.
    pub cpu: Nanos,
}

/// A period in which a disk or a downstream server is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPeriod {
    /// Beginning, from the start of the run.
    pub start: Nanos,
    /// End, from the start of the run.
    pub end: Nanos,
    /// Factor by which each wait without a core ([`Step::Wait`]) is longer.
    pub factor: f64,
}

impl SlowPeriod {
    /// Factor for a wait that begins at `now`; 1 outside the period.
    pub(crate) fn factor_at(this: Option<SlowPeriod>, now: Time) -> f64 {
        let now = now.since(Time::ZERO);
        this.filter(|slow| slow.start <= now && now < slow.end).map_or(1.0, |slow| slow.factor)
    }
}

/// Queue that a free core serves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// The run queue; packets wait until it is empty (Shenango's scheduler, on which the papers
    /// were measured).
    #[default]
    TasksFirst,
    /// The packet queue, so that a rejection never waits for work. Work does wait for packets:
    /// where receiving alone fills the cores, no request is executed.
    PacketsFirst,
}

/// Point at which the controller decides whether a request is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aqm {
    /// After a core has received and parsed the request, at the head of the packet queue
    /// (Breakwater §4).
    #[default]
    Head,
    /// On arrival at the server, before the request joins a queue (the poster's simulator). A
    /// rejected request is never received: its rejection costs only building and sending.
    Arrival,
}

/// How an application's locks are implemented and acquired; the same for all locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockModel {
    /// How a request waits.
    pub kind: LockKind,
    /// When a request gives up a contended lock.
    pub acquire: LockPolicy,
}

/// How a request waits for a lock. Both kinds grant the lock to the oldest waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// The request leaves its core. Once it has the lock, it joins the run queue of the core that
    /// released it.
    #[default]
    Mutex,
    /// The request spins on its core.
    Spinlock,
}

/// When a request gives up a lock that another request holds: it releases its locks and ends as a
/// rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockPolicy {
    /// Never.
    #[default]
    Plain,
    /// Immediately, if the age of the lock's oldest waiter plus the run queue's delay exceeds the
    /// rest of the request's budget (thesis §2.3.2; Hoover §3.4).
    ///
    /// The packet queue, the run queue and the locks' queues spend the budget. A request is also
    /// rejected on arrival if the run queue's delay exceeds the budget.
    UnlessCongested {
        /// Total queueing delay that a request may spend.
        budget: Nanos,
        /// Whether a waiting request checks its budget again when it would get the lock, and is
        /// rejected if the budget is spent. This is our addition.
        ///
        /// The runtime's locks check once more when the request has got its core; here a request
        /// that was handed the lock still waits for its core. As published, a request checks once,
        /// before it waits.
        recheck: bool,
    },
    /// Immediately.
    Try,
    /// After it has waited for `timeout`.
    Timed {
        /// Maximum wait.
        timeout: Nanos,
    },
}

impl LockPolicy {
    /// The policy as published: a waiting request does not check its budget again.
    pub fn as_published(self) -> Self {
        match self {
            LockPolicy::UnlessCongested { budget, .. } => LockPolicy::UnlessCongested { budget, recheck: false },
            other => other,
        }
    }
}

/// CPU time per message.
///
/// The sum for a served request follows from the paper's capacity: 10 cores at 10 µs give 850 k/s,
/// so 11.765 µs in all (Breakwater §5.2). Its division is our assumption, the same for every
/// controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Receive and parse one message of any kind.
    pub receive: Nanos,
    /// Create the task of an admitted request.
    pub spawn: Nanos,
    /// Send one message of any kind; responses of one session that are ready together share it.
    pub send: Nanos,
    /// Build a rejection, without sending it.
    pub reject: Nanos,
    /// Take work from another core.
    pub steal: Nanos,
}

/// Costs of a server with sockets, like the real one (`server/engine`).
///
/// A core reads all messages that wait in a socket at once, and ready responses of a session leave
/// together. So a request is cheaper the deeper the sockets are. [`Costs`] are those of a single
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCosts {
    /// CPU time of receiving a message that is read together with an earlier one of its session.
    pub receive: Nanos,
    /// CPU time of sending a message that shares a write with another of its session.
    pub send: Nanos,
    /// CPU time of a write that shares a system call with writes of other sessions.
    pub batched_write: Nanos,
}

impl SocketCosts {
    /// Maximum number of messages that a core reads from a socket at a time.
    pub const READ_QUANTUM: usize = 64;
    /// Time for which a response waits for others of its session that are pending.
    ///
    /// Rejections, credits and fast responses wait as long for those of other sessions. Nothing is
    /// held while no request waits for a core.
    pub const HOLD: Nanos = Nanos::from_micros(20);
    /// A response that took at least this long to compute does not wait for those of other
    /// sessions.
    pub const SLOW: Nanos = Nanos::from_micros(2);
}

impl Costs {
    /// No CPU time besides the service time, for comparison with queueing theory.
    pub const FREE: Costs =
        Costs { receive: Nanos(0), spawn: Nanos(0), send: Nanos(0), reject: Nanos(0), steal: Nanos(0) };

    /// CPU time of a served request besides its service time.
    pub fn per_request(&self) -> Nanos {
        self.receive + self.spawn + self.send
    }
}

impl Default for Costs {
    fn default() -> Self {
        Costs { receive: Nanos(750), spawn: Nanos(250), send: Nanos(765), reject: Nanos(50), steal: Nanos(100) }
    }
}

impl Default for ServerModel {
    fn default() -> Self {
        ServerModel {
            cores: 10,
            costs: Costs::default(),
            sockets: None,
            batch: 16,
            order: QueueOrder::TasksFirst,
            aqm: Aqm::Head,
            control: ControlTiming::Ideal,
            methods: MethodVisibility::Paths,
            stalls: None,
            wake: None,
            pauses: None,
            quota: None,
            slow: None,
            scheduling: None,
        }
    }
}

impl ServerModel {
    /// Requests per second that the cores could serve if they did nothing else.
    pub fn capacity(&self, service_mean: Nanos) -> Rate {
        let busy = (service_mean + self.costs.per_request()).as_secs_f64();
        Rate(f64::from(self.cores) / busy * self.available())
    }

    /// Share of the cores' time that stalls, pauses and the quota leave, 0..=1.
    pub fn available(&self) -> f64 {
        let stalls = self.stalls.map_or(1.0, |stalls| stalls.available());
        let pauses = self.pauses.map_or(1.0, |pauses| 1.0 - pauses.length.0 as f64 / pauses.interval.0.max(1) as f64);
        let quota =
            self.quota.map_or(1.0, |quota| quota.cpu.0 as f64 / (quota.period.0.max(1) as f64 * f64::from(self.cores)));
        (stalls * pauses).min(quota)
    }
}

/// The simulated network: the same delay in each direction, in order within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkModel {
    /// Round trip without queueing.
    pub rtt: Nanos,
    /// Maximum additional delay of a message, uniformly distributed.
    pub jitter: Nanos,
}

impl Default for NetworkModel {
    fn default() -> Self {
        NetworkModel { rtt: Nanos::from_micros(10), jitter: Nanos::ZERO }
    }
}
