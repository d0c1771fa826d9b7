//! State of a server at one moment, as metrics, dashboard and programs get it. Never here: how it is told (`exposition`).

use crate::exemplar::Exemplar;
use crate::latency::LatencyCounts;
use crate::tenants::Usage;
use crate::waits::WaitCounts;
use serde::Serialize;

/// State of a server. Counters begin with the server; spans are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Name of the port or gate among those of its process, such as `rpc`.
    pub port: String,
    /// The service's name.
    pub service: String,
    /// The admission controller.
    pub controller: String,
    /// Whether refusals happen: `enforce` or `shadow`.
    pub mode: &'static str,
    /// How requests are executed, in words, such as `2 cores`.
    pub setup: String,
    /// Since the start.
    pub uptime_ns: u64,
    /// Time of the snapshot, since 1970.
    pub unix_ns: u64,
    /// The objective.
    pub slo_ns: u64,
    /// The delay that the controller aims at, if it aims at one.
    pub target_ns: Option<u64>,
    /// Threads that execute requests.
    pub cores: u64,
    /// Time in which they had nothing to do, all together.
    pub idle_ns: u64,
    /// Requests that have come.
    pub arrived: u64,
    /// Admitted on arrival.
    pub admitted: u64,
    /// Answered with a result or a failure.
    pub completed: u64,
    /// Results within the objective, as far as the server sees it.
    pub in_time: u64,
    /// Answered with a failure.
    pub failed: u64,
    /// Without an answer, for their connection ended first.
    pub abandoned: u64,
    /// Refused, by reason and class; with a zero for each reason that the server can have.
    pub refused: Vec<RejectionCount>,
    /// Admitted, by class, where there are classes; empty elsewhere.
    pub admitted_by_class: Vec<u64>,
    /// Admitted and not ended.
    pub in_flight: u64,
    /// The same by class, where there are classes; empty elsewhere.
    #[serde(skip)]
    pub in_flight_by_class: Vec<u64>,
    /// Answers by class and route, where they are told apart; their sums are those above. Empty elsewhere.
    #[serde(skip)]
    pub answers: Vec<RouteAnswers>,
    /// Cost of requests by route, where it is known.
    #[serde(skip)]
    pub costs: Vec<RouteCost>,
    /// Work by tenant, where requests name tenants: the greatest ones, and all others.
    #[serde(skip)]
    pub tenants: Vec<TenantUsage>,
    /// Examples of what the samples count, newest first. A source leaves them out of its snapshot ([`crate::Source::exemplars`]).
    #[serde(skip)]
    pub exemplars: Vec<Exemplar>,
    /// Connections that are open.
    pub connections: Option<u64>,
    /// The queueing delay at this moment.
    pub delay_ns: u64,
    /// The queueing delay that stands: the least of a short while.
    pub standing_ns: u64,
    /// Credits that there are.
    pub credit_pool: Option<i64>,
    /// Credits that clients hold.
    pub credits_issued: Option<i64>,
    /// Registered sessions.
    pub sessions: Option<i64>,
    /// The least importance that is admitted.
    pub level: Option<f64>,
    /// Requests that may be under way at once.
    pub concurrency_limit: Option<f64>,
    /// Waits of requests, by where they waited.
    pub waits: Vec<StageWaits>,
    /// Latencies of results as far as the server sees them: from a request's arrival until its answer.
    #[serde(skip)]
    pub latencies: LatencyCounts,
    /// Locks of the process; those first that were waited for longest.
    pub locks: Vec<Lock>,
    /// Handshakes, of a port that speaks TLS.
    pub tls: Option<TlsCounts>,
    /// The servers behind this one, where it asks any.
    pub tier: Option<Tier>,
}

/// Requests that were refused for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectionCount {
    /// The word of the reason.
    pub reason: &'static str,
    /// Their class, where there are classes.
    pub class: Option<u8>,
    /// How many.
    pub count: u64,
}

/// Label of whatever has no label of its own.
pub const OTHER: &str = "other";

/// Answers to the requests of a class and route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAnswers {
    /// Their class, where there are classes.
    pub class: Option<u8>,
    /// Name or number of their route, or [`OTHER`].
    pub route: String,
    /// Results within the objective.
    pub in_time: u64,
    /// Results after it.
    pub late: u64,
    /// Failures.
    pub failed: u64,
}

/// Time that the requests of a route have occupied a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCost {
    /// Name or number of the route, or [`OTHER`].
    pub route: String,
    /// Distribution of it.
    pub costs: WaitCounts,
}

/// Work of a tenant's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Number of the tenant, or [`OTHER`].
    pub tenant: String,
    /// The work.
    pub usage: Usage,
}

impl TenantUsage {
    /// Accounts under their labels.
    pub fn from_tenants(of: &crate::tenants::Tenants) -> Vec<Self> {
        let named = |(tenant, account): (Option<leeward_core::units::Tenant>, Usage)| TenantUsage {
            tenant: tenant.map_or_else(|| OTHER.into(), |tenant| tenant.0.to_string()),
            usage: account,
        };
        of.usage().into_iter().map(named).collect()
    }
}

/// Waits at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageWaits {
    /// The word of the stage.
    pub stage: &'static str,
    /// The waits.
    #[serde(flatten)]
    pub waits: WaitCounts,
}

/// The locks of one name and kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lock {
    /// Their name.
    pub name: String,
    /// Kind of these locks, such as `mutex`.
    pub kind: &'static str,
    /// Taken, with or without waiting.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Refused, for the request's budget would not have lasted.
    pub refused: u64,
    /// Sum of all waits.
    pub waited_ns: u64,
    /// The wait that 99 of a hundred of those that waited did not exceed; up to twice too much.
    pub p99_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
    /// Waits by bucket: bucket `i` holds waits below 2^i ns that no bucket before holds, the last one all others.
    #[serde(skip)]
    pub waits: Vec<u64>,
}

/// A tier: a server that asks others before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// Its threading model.
    pub threading: String,
    /// Steps that asked leaves.
    pub gathers: u64,
    /// Calls of leaves.
    pub calls: u64,
    /// Requests that wait for leaves without a thread.
    pub waiting: u64,
    /// Replies that came after their request had gone on.
    pub late: u64,
    /// Calls that were made again because they took long.
    pub hedged: u64,
    /// Calls that were made again because they were rejected.
    pub retried: u64,
    /// Calls that were given up because enough had come.
    pub cancelled: u64,
    /// Changes of the threading model.
    pub switches: u64,
    /// The leaves, in their order: 255 at most.
    pub leaves: Vec<Leaf>,
}

/// A server that a tier asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// Its address.
    pub address: String,
    /// Calls so far.
    pub calls: u64,
    /// Connections that are there, as far as the tier has looked: an idle thread that asks by itself looks when it asks.
    pub connections: u64,
    /// Credits that the tier holds there, where they bind.
    pub credits: Option<i64>,
}

/// Handshakes of a port. Counters begin with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlsCounts {
    /// Done.
    pub done: u64,
    /// Done by taking up an earlier session.
    pub resumed: u64,
    /// Done with a client that has proven an identity.
    pub identified: u64,
    /// Under way, or waiting for their turn.
    pub waiting: u64,
    /// Refused or given up, by reason.
    pub refused: Vec<(String, u64)>,
    /// New certificates that were taken.
    pub renewed: u64,
}

impl Snapshot {
    /// Refusals in all.
    pub fn rejections(&self) -> u64 {
        self.refused.iter().fold(0, |sum, refused| sum.saturating_add(refused.count))
    }

    /// Refusals of this reason, of all classes.
    pub fn rejected_for(&self, reason: &str) -> u64 {
        self.refused.iter().filter(|refused| refused.reason == reason).fold(0, |sum, refused| sum + refused.count)
    }

    /// Results after the objective.
    pub fn late(&self) -> u64 {
        self.completed.saturating_sub(self.in_time.saturating_add(self.failed))
    }

    /// Whether more waits than the controller aims at.
    pub fn is_overloaded(&self) -> bool {
        self.standing_ns > self.target_ns.unwrap_or(self.slo_ns)
    }
}
