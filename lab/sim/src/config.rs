//! Configuration of a simulation: the server, the network, the clients and the measurement. Plain data; the defaults
//! are the testbed of the Breakwater paper.

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
    /// The clients and what they ask.
    pub workload: Workload,
    /// Kinds of requests; the default has none: all are alike.
    pub kinds: RequestKinds,
    /// Steps of a request at the server besides computing; the default takes no locks.
    pub application: Application,
    /// How the application's locks are made and taken.
    pub locks: LockModel,
    /// Behaviour of clients besides what their algorithm says.
    pub clients: ClientModel,
    /// Several such servers behind one service; `None`: there is one.
    pub replicas: Option<Replicas>,
    /// A tier of threads and leaves in the server's place; `None`: a server of cores.
    pub tier: Option<Box<Tier>>,
    /// A graph of services in the server's place; `None`: one service.
    pub graph: Option<Arc<Graph>>,
    /// Share of the clients, or of the kinds' tenants, whose requests are refused in earnest, in percent. Below 100 the controller
    /// rehearses: it decides on the queue that would be.
    pub enforced: u8,
    /// A response later than this, counted from the request's issue, is no goodput.
    pub slo: Nanos,
    /// Nothing is measured before this.
    pub warmup: Nanos,
    /// The run ends here (simulated time, `warmup` included).
    pub duration: Nanos,
    /// Width of the time series' windows; `None` for no time series.
    pub window: Option<Nanos>,
    /// Width of the fine time series (completions and goodput only); `None` for none.
    pub fine_window: Option<Nanos>,
    /// Draws everything random.
    pub seed: u64,
    /// Check the controller's and the plant's books after every control period: see [`crate::RunOutcome::violations`].
    /// Looks at every session each time, so it is for tests.
    pub audit: bool,
}

impl SimConfig {
    /// Whether the controller rehearses.
    pub fn is_shadow(&self) -> bool {
        self.enforced < 100
    }

    /// The testbed of Breakwater §5.1: 10 cores, 10 µs round trip, 1,000 clients of equal share, Poisson arrivals, an
    /// objective of ten times mean service and round trip, measured from 2 s to 4 s. `demand` is a multiple of
    /// [`ServerModel::capacity`].
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
            window: None,
            fine_window: None,
            seed: 1,
            audit: false,
        }
    }

    /// How long a request of this kind takes on a core.
    pub fn service_of(&self, kind: u8) -> &ServiceTime {
        let own = self.kinds.0.get(usize::from(kind)).and_then(|kind| kind.service.as_ref());
        own.unwrap_or(&self.workload.service)
    }

    /// Latest response to a request of this kind that is in time, from its issue.
    pub fn objective_of(&self, kind: u8) -> Nanos {
        self.kinds.0.get(usize::from(kind)).and_then(|kind| kind.deadline).unwrap_or(self.slo)
    }

    /// The part of this that a controller is told.
    pub fn environment(&self) -> Environment {
        let environment = Environment::new(self.server.cores, self.network.rtt, self.slo);
        if self.server.scheduling.is_some() { environment.with_allocator() } else { environment }
    }
}

/// Behaviour of every client besides what its algorithm says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientModel {
    /// Requests leave a client at least so long after each other. Zero: as soon as they may.
    pub pacing: Nanos,
    /// Span after a request's issue at which the application gives up on it: a request that has not left then never
    /// leaves, and a later reply counts for nothing. Its credits are the client's all the same. `None`: the application
    /// never gives up.
    pub timeout: Option<Nanos>,
}

/// Several identical servers that know nothing of each other. Each client has a session at each of them. A request that the
/// first server drops, or that gets no credit from it in time, is sent once more, to the next one (thesis §2.5.3, Fig. 2.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// How many, 2 to 16.
    pub servers: u32,
    /// Which of them a request is sent to first.
    pub first: FirstServer,
    /// How long a request waits for a credit at either server; `None`: for as long as the algorithm's client lets it.
    pub credit_timeout: Option<Nanos>,
}

/// Which of several servers a request is sent to first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstServer {
    /// The first; the others take what it does not serve.
    #[default]
    Primary,
    /// Each in turn: a client asks the one after the one that it asked before.
    InTurn,
}

impl Replicas {
    /// How often a request is sent at most.
    pub const ATTEMPTS: u64 = 2;

    /// A server's own objective, which its controller is told: the service's divided by the number of attempts
    /// (thesis §2.4, "Target delay vs. SLO").
    pub fn objective(&self, slo: Nanos) -> Nanos {
        slo / Self::ATTEMPTS
    }
}

/// The simulated server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerModel {
    /// Cores that run packets and requests.
    pub cores: u32,
    /// CPU costs besides the service itself.
    pub costs: Costs,
    /// Savings of messages that share a read or a write; `None`: each packet is received and sent by itself, as on the papers' testbed.
    pub sockets: Option<SocketCosts>,
    /// Packets that a core takes from its queue in one step (Shenango's softirq budget is 16).
    pub batch: u32,
    /// Work that a free core looks at first.
    pub order: QueueOrder,
    /// When a request's admission is decided.
    pub aqm: Aqm,
    /// When the controller's slow half has its turns.
    pub control: ControlTiming,
    /// Whether the controller is told a request's path as its method.
    pub methods: MethodVisibility,
    /// Time that the machine takes away; `None`: nothing, as on a testbed of the papers.
    pub stalls: Option<Stalls>,
    /// Time until an idle core begins with what has come for it; `None`: it begins at once.
    pub wake: Option<WakeTable>,
    /// Pauses of the whole process; `None`: it has none.
    pub pauses: Option<Pauses>,
    /// CPU time that the process may take; `None`: all that its cores have.
    pub quota: Option<Quota>,
    /// A time in which whatever requests wait for without a core takes longer; `None`: there is none.
    pub slow: Option<SlowPeriod>,
    /// How cores come and go; `None`: all are always there, and one without work takes another's at once.
    pub scheduling: Option<Scheduling>,
}

/// When the controller's slow half has its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlTiming {
    /// Once per period, however busy the cores are.
    #[default]
    Ideal,
    /// As a task of the server: each turn waits behind the requests that wait for a core, and the next is a period later. The published loop
    /// sleeps on the loaded runtime.
    Queued,
}

/// Knowledge of a controller about a request's way through the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodVisibility {
    /// Each path is a method of its own, as a procedure's number or a route says.
    #[default]
    Paths,
    /// Nothing: whether a request needs a lock depends on what nobody sees.
    Unknown,
}

/// How a shared machine takes cores away from the server: on each core by itself, at exponential intervals, for
/// exponential spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Mean time from the end of one to the beginning of the next.
    pub mean_interval: Nanos,
    /// Mean length.
    pub mean_length: Nanos,
}

impl Stalls {
    /// The share of time that is left, 0..=1.
    pub fn available(&self) -> f64 {
        self.mean_interval.0 as f64 / (self.mean_interval + self.mean_length).0.max(1) as f64
    }
}

/// Pauses of the whole process, such as those of a garbage collector: all cores stand still at once, the control loop with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// From the beginning of one to the beginning of the next; the first begins after as long.
    pub interval: Nanos,
    /// Length of each, less than `every`.
    pub length: Nanos,
}

/// A quota of CPU time, as containers have: once the cores have taken it all, they stand still until the period ends (Linux, CFS
/// bandwidth control). What a core has begun it ends, as with the kernel's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Length of a period.
    pub period: Nanos,
    /// CPU time of all cores in each.
    pub cpu: Nanos,
}

/// A time in which a disk, or a server further down, is slower than else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPeriod {
    /// Its beginning.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// Each wait without a core ([`Step::Wait`]) takes so many times as long.
    pub factor: f64,
}

impl SlowPeriod {
    /// How many times as long a wait takes that begins now.
    pub(crate) fn factor_at(this: Option<SlowPeriod>, now: Time) -> f64 {
        let now = now.since(Time::ZERO);
        this.filter(|slow| slow.start <= now && now < slow.end).map_or(1.0, |slow| slow.factor)
    }
}

/// Work that a free core looks at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// Its run queue; packets wait until that is empty (Shenango's scheduler, on which the papers were measured).
    #[default]
    TasksFirst,
    /// Its packets, so that a rejection never waits behind work. Work does wait behind packets: at demands where receiving
    /// alone fills the cores, nothing is executed at all.
    PacketsFirst,
}

/// When the controller decides whether a request is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aqm {
    /// When a core has received and parsed the request, at the head of the packet queue (Breakwater §4).
    #[default]
    Head,
    /// When the request reaches the server, before it joins a queue (the poster's simulator). A rejected request is never
    /// received: its drop costs building and sending alone.
    Arrival,
}

/// How an application's locks are made and taken: one way for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockModel {
    /// Way in which a request waits.
    pub kind: LockKind,
    /// Alternative of a request to waiting.
    pub acquire: LockPolicy,
}

/// Way in which a request waits for a lock. Either way the lock goes to the request that has waited longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// The request leaves its core to others, and joins the run queue of the core on which the lock is given back when
    /// it has it.
    #[default]
    Mutex,
    /// The request keeps its core busy.
    Spinlock,
}

/// When a request does without a lock that somebody else holds: it gives back the locks it has and ends as a drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockPolicy {
    /// Never.
    #[default]
    Plain,
    /// At once, if the age of the lock's oldest waiter and the run queue's delay together exceed what is left of the
    /// request's budget (thesis §2.3.2; Hoover §3.4). A budget is spent in the packet queue, the run queue and the locks'
    /// queues. It also rejects a request when it arrives, if the run queue's delay exceeds it.
    UnlessCongested {
        /// Queueing delay that a request may spend in all.
        budget: Nanos,
        /// Whether a request that waits is asked again when its turn comes, and refused if its budget has been spent by then:
        /// ours. The runtime's locks ask once more when it has got its core, which
        /// a request that has been handed the lock still waits for here. As published, it is asked before it waits and never again.
        recheck: bool,
    },
    /// At once.
    Try,
    /// When it has waited this long for it.
    Timed {
        /// How long.
        timeout: Nanos,
    },
}

impl LockPolicy {
    /// The same without our addition: a request that waits is not asked again.
    pub fn as_published(self) -> Self {
        match self {
            LockPolicy::UnlessCongested { budget, .. } => LockPolicy::UnlessCongested { budget, recheck: false },
            other => other,
        }
    }
}

/// CPU time per message. The sum for a served request is what the paper's capacity implies: 10 cores at 10 µs give
/// 850 k/s, so 11.765 µs in all (Breakwater §5.2). How it divides is our assumption, the same for every controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Receive and parse one message of any kind.
    pub receive: Nanos,
    /// Create the task of an admitted request.
    pub spawn: Nanos,
    /// Send one message of any kind; responses of one session that are ready together share it.
    pub send: Nanos,
    /// Build a drop, besides sending it.
    pub reject: Nanos,
    /// Take work from another core.
    pub steal: Nanos,
}

/// A server behind sockets, as the real one is (`server/engine`): a core reads all that waits in a socket at once, and answers of a
/// session leave together as far as they are ready. So the deeper sockets are, the cheaper a request. [`Costs`] are those of a
/// message by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCosts {
    /// CPU time of receiving a message that was read together with an earlier one of its session.
    pub receive: Nanos,
    /// CPU time of sending a message that leaves in one write with another of its session.
    pub send: Nanos,
    /// CPU time of a write that leaves in one system call with those of other sessions.
    pub batched_write: Nanos,
}

impl SocketCosts {
    /// Messages that a core takes from a socket in one turn.
    pub const READ_QUANTUM: usize = 64;
    /// Span for which an answer waits for others of its session that are on their way, and so long do drops, credits and quick answers for
    /// those of other sessions. They wait for nothing when no request waits for a core.
    pub const HOLD: Nanos = Nanos::from_micros(20);
    /// An answer that took at least this long to make does not wait for those of other sessions.
    pub const SLOW: Nanos = Nanos::from_micros(2);
}

impl Costs {
    /// No CPU time but the service: for comparison with queueing theory.
    pub const FREE: Costs =
        Costs { receive: Nanos(0), spawn: Nanos(0), send: Nanos(0), reject: Nanos(0), steal: Nanos(0) };

    /// CPU time of a served request besides its service.
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
    /// Requests per second that the cores can serve when they do nothing else.
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

/// The simulated network: the same delay each way, in order within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkModel {
    /// Round trip without queueing.
    pub rtt: Nanos,
    /// Each message is delayed by up to this much more, evenly distributed.
    pub jitter: Nanos,
}

impl Default for NetworkModel {
    fn default() -> Self {
        NetworkModel { rtt: Nanos::from_micros(10), jitter: Nanos::ZERO }
    }
}
