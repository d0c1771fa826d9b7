//! State of a server at one moment, for metrics, dashboards and programs. Does not contain formats
//! (`exposition`).

use crate::exemplar::Exemplar;
use crate::latency::LatencyCounts;
use crate::tenants::Usage;
use crate::waits::WaitCounts;
use serde::Serialize;

/// State of a server. Counters start with the server; durations are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Name of the port or gate within its process, such as `rpc`.
    pub port: String,
    /// Name of the service.
    pub service: String,
    /// Name of the admission controller.
    pub controller: String,
    /// Mode of the controller: `enforce` or `shadow`.
    pub mode: &'static str,
    /// Threading setup as text, such as `2 cores`.
    pub setup: String,
    /// Whether the server stops or has stopped.
    #[serde(skip)]
    pub is_stopping: bool,
    /// Time since the server's start.
    pub uptime_ns: u64,
    /// Time of the snapshot, since 1970.
    pub unix_ns: u64,
    /// Latency objective.
    pub slo_ns: u64,
    /// Queueing delay that the controller aims at, if it has a target.
    pub target_ns: Option<u64>,
    /// Threads that execute requests.
    pub cores: u64,
    /// Total time in which these threads were idle.
    pub idle_ns: u64,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were admitted on arrival.
    pub admitted: u64,
    /// Requests that were answered with a result or a failure.
    pub completed: u64,
    /// Results within the objective, as measured at the server.
    pub in_time: u64,
    /// Requests that were answered with a failure.
    pub failed: u64,
    /// Requests whose connection ended before their answer.
    pub abandoned: u64,
    /// Rejections by reason and class, with a zero for each reason that the server can have.
    pub refused: Vec<RejectionCount>,
    /// Admitted requests by class; empty without classes.
    pub admitted_by_class: Vec<u64>,
    /// Admitted requests that have not ended.
    pub in_flight: u64,
    /// Admitted requests that have not ended, by class; empty without classes.
    #[serde(skip)]
    pub in_flight_by_class: Vec<u64>,
    /// Answers by class and route, with the same sums as the fields above; empty if the server does
    /// not separate them.
    #[serde(skip)]
    pub answers: Vec<RouteAnswers>,
    /// Cost of requests by route, where it is known.
    #[serde(skip)]
    pub costs: Vec<RouteCost>,
    /// Work by tenant, where requests name tenants: the greatest tenants, and all others together.
    #[serde(skip)]
    pub tenants: Vec<TenantUsage>,
    /// Exemplars for the samples, newest first. A source leaves them out of its snapshot
    /// ([`crate::Source::exemplars`]).
    #[serde(skip)]
    pub exemplars: Vec<Exemplar>,
    /// Open connections.
    pub connections: Option<u64>,
    /// Queueing delay at this moment.
    pub delay_ns: u64,
    /// Standing queueing delay: the minimum over a short window.
    pub standing_ns: u64,
    /// Size of the credit pool.
    pub credit_pool: Option<i64>,
    /// Credits that clients hold.
    pub credits_issued: Option<i64>,
    /// Registered sessions.
    pub sessions: Option<i64>,
    /// Lowest priority that is admitted.
    pub level: Option<f64>,
    /// Limit of concurrent requests.
    pub concurrency_limit: Option<f64>,
    /// Waits of requests, by stage.
    pub waits: Vec<StageWaits>,
    /// Latencies of results as measured at the server, from a request's arrival until its answer.
    #[serde(skip)]
    pub latencies: LatencyCounts,
    /// Locks of the process, those with the longest total wait first.
    pub locks: Vec<Lock>,
    /// TLS handshakes, if the port uses TLS.
    pub tls: Option<TlsCounts>,
    /// State of the tier, if this server calls leaves.
    pub tier: Option<Tier>,
}

/// Requests that were rejected for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectionCount {
    /// Name of the reason.
    pub reason: &'static str,
    /// Class of the requests, where there are classes.
    pub class: Option<u8>,
    /// Number of rejections.
    pub count: u64,
}

/// Label of all routes or tenants without labels of their own.
pub const OTHER: &str = "other";

/// Answers to the requests of one class and route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAnswers {
    /// Class of the requests, where there are classes.
    pub class: Option<u8>,
    /// Name or number of the route, or [`OTHER`].
    pub route: String,
    /// Results within the objective.
    pub in_time: u64,
    /// Results after the objective.
    pub late: u64,
    /// Failures.
    pub failed: u64,
}

/// Time for which the requests of a route occupied a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCost {
    /// Name or number of the route, or [`OTHER`].
    pub route: String,
    /// Distribution of these times.
    pub costs: WaitCounts,
}

/// Work of a tenant's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Number of the tenant, or [`OTHER`].
    pub tenant: String,
    /// Admitted and rejected work.
    pub usage: Usage,
}

impl TenantUsage {
    /// Returns the usage of all tenants, with their labels.
    pub fn from_tenants(of: &crate::tenants::Tenants) -> Vec<Self> {
        let to_usage = |(tenant, account): (Option<leeward_core::units::Tenant>, Usage)| TenantUsage {
            tenant: tenant.map_or_else(|| OTHER.into(), |tenant| tenant.0.to_string()),
            usage: account,
        };
        of.usage().into_iter().map(to_usage).collect()
    }
}

/// Waits in one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageWaits {
    /// Name of the stage.
    pub stage: &'static str,
    /// The waits.
    #[serde(flatten)]
    pub waits: WaitCounts,
}

/// Locks of one name and kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lock {
    /// Name of the locks.
    pub name: String,
    /// Kind of the locks, such as `mutex`.
    pub kind: &'static str,
    /// Acquisitions, with or without waiting.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Rejections, because the request's budget would not have lasted.
    pub refused: u64,
    /// Sum of all waits.
    pub waited_ns: u64,
    /// 99th percentile of the waits of contended acquisitions; up to twice too high.
    pub p99_ns: u64,
    /// Longest wait.
    pub longest_ns: u64,
    /// Waits by bucket: bucket `i` counts waits below 2^i ns that no earlier bucket counts; the
    /// last bucket counts the rest.
    #[serde(skip)]
    pub waits: Vec<u64>,
}

/// Tier: a server that calls leaves before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// Threading model.
    pub threading: String,
    /// Steps that called leaves.
    pub gathers: u64,
    /// Calls to leaves.
    pub calls: u64,
    /// Requests that wait for leaves without occupying a thread.
    pub waiting: u64,
    /// Replies that arrived after their request had continued.
    pub late: u64,
    /// Calls that were repeated because they took long.
    pub hedged: u64,
    /// Calls that were repeated because they were rejected.
    pub retried: u64,
    /// Calls that were cancelled because enough replies had arrived.
    pub cancelled: u64,
    /// Requests that continued with fewer results of leaves than they asked for.
    pub partial: u64,
    /// Changes of the threading model.
    pub switches: u64,
    /// Leaves, in their order: 255 at most.
    pub leaves: Vec<Leaf>,
}

/// Server that a tier calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// Address of the leaf.
    pub address: String,
    /// Calls so far.
    pub calls: u64,
    /// Open connections, as far as the tier has polled them. An idle thread that calls by itself
    /// polls when it calls.
    pub connections: u64,
    /// Credits that the tier holds at this leaf, where credits are enforced.
    pub credits: Option<i64>,
}

/// TLS handshakes of a port. Counters start with the port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlsCounts {
    /// Completed handshakes.
    pub done: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes with a client that has proven an identity.
    pub identified: u64,
    /// Handshakes in progress or waiting for their turn.
    pub waiting: u64,
    /// Handshakes that were refused or given up, by reason.
    pub refused: Vec<(String, u64)>,
    /// New certificates that were loaded.
    pub renewed: u64,
}

impl Snapshot {
    /// Total number of rejections.
    pub fn rejections(&self) -> u64 {
        self.refused.iter().fold(0, |sum, refused| sum.saturating_add(refused.count))
    }

    /// Rejections for this reason, of all classes.
    pub fn rejected_for(&self, reason: &str) -> u64 {
        self.refused.iter().filter(|refused| refused.reason == reason).fold(0, |sum, refused| sum + refused.count)
    }

    /// Results after the objective.
    pub fn late(&self) -> u64 {
        self.completed.saturating_sub(self.in_time.saturating_add(self.failed))
    }

    /// True if this server is a tier that has no connection to any leaf.
    pub fn has_lost_leaves(&self) -> bool {
        let is_away = |leaf: &Leaf| leaf.connections == 0;
        self.tier.as_ref().is_some_and(|tier| !tier.leaves.is_empty() && tier.leaves.iter().all(is_away))
    }

    /// True if the standing delay exceeds the controller's target.
    pub fn is_overloaded(&self) -> bool {
        self.standing_ns > self.target_ns.unwrap_or(self.slo_ns)
    }
}
