//! Outcome of a run on any plant, in raw units. A value that a plant can't measure is an `Option`.
//! Does not contain the rows of results.

use crate::counts::{RequestCounts, ServerCounts};
use crate::distribution::Percentiles;
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_threading::Setup;
use serde::{Serialize, Serializer};

/// Whether and when a run settled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SettlingOutcome {
    /// Whether goodput and the controller's state were stationary from the start of the measurement
    /// on.
    pub settled: bool,
    /// Whether throughput was. Without control, at just the capacity, the queue and so goodput
    /// never settle, and throughput does.
    pub throughput_settled: bool,
    /// Start of the measurement.
    pub from: Nanos,
    /// Half-width of the 95 % confidence interval of goodput within this run, as a share of
    /// goodput; `None` if the run was too short to tell.
    pub half_width: Option<f64>,
}

/// Outcome of a run. Counts and latencies cover the measured interval (after the warm-up) unless
/// stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Length of the measured interval.
    pub measured: Nanos,
    /// Whether the run had settled when the measurement began. `None`: nothing observed it.
    pub settling: Option<SettlingOutcome>,
    /// Ends of requests in the measured interval.
    pub counts: RequestCounts,
    /// Ends of requests over the whole run, warm-up included, with the unfinished requests at its
    /// end.
    pub totals: RequestCounts,
    /// Counters of the server's requests and messages in the measured interval.
    pub server: ServerCounts,
    /// Whether requests take locks. If not, `server.refused_at_locks` is meaningless.
    pub uses_locks: bool,
    /// Latency of completed requests, from issue to response.
    pub latency: Percentiles,
    /// Time from a request's departure to its rejection's arrival at the client.
    pub reject_delay: Percentiles,
    /// Time from a request's arrival at the server to the start of its execution, for executed
    /// requests. A real server does not measure it.
    pub waiting: Option<Percentiles>,
    /// CPU time spent over CPU time available, 0..=1.
    pub cpu_utilization: f64,
    /// Mean number of requests in the server, queued or executing. A real server does not measure
    /// it.
    pub mean_in_server: Option<f64>,
    /// Mean time in the server of departed requests, ns; of answered requests on a real server.
    pub mean_sojourn_ns: f64,
    /// The first violated invariants, as text; empty unless a plant or a controller has a defect.
    ///
    /// The simulator checks on every run:
    /// - each request has exactly one end;
    /// - no core idles beside queued work;
    /// - Little's law holds as an identity, also for each lock's waiters: the area under the number
    ///   of requests in the server is the sum of their times there, to the nanosecond;
    /// - each lock goes to its oldest waiter.
    ///
    /// With `audit` it also checks in each control period:
    /// - a controller's issued credits are the sum of its sessions' windows;
    /// - every request is where the counters say.
    pub violations: Vec<String>,
    /// Outcomes of the locks, in the application's order; on a real machine in descending order of
    /// waiting time.
    pub locks: Vec<LockOutcome>,
    /// Time series over the whole run, if asked for.
    pub windows: Vec<WindowOutcome>,
    /// Fine time series over the whole run, if asked for.
    pub fine_windows: Vec<FineWindow>,
    /// Gauges of the controller at the end.
    pub gauges: Gauges,
    /// Number of events that the simulator processed in the whole run.
    pub events: Option<u64>,
    /// Use of the cores, with core allocation.
    pub cores: Option<CoreUsage>,
    /// Time from a request's issue to the failure of its first attempt, if there are several
    /// servers.
    /// A failure is a rejection, or no credit in time.
    pub failure_delay: Option<Percentiles>,
    /// Lateness of a real load generator that missed its schedule: such a run does not measure the
    /// server. `None`: it kept the schedule, or the run was simulated.
    pub lateness: Option<Percentiles>,
    /// Outcome of each server, if there are several.
    ///
    /// A server's requests are attempts, its latencies begin with them, and its objective is its
    /// own. The messages, rejections and CPU time of the whole are the sums of the servers'. Only
    /// the servers have locks.
    pub replicas: Vec<RunOutcome>,
    /// The threads of a tier.
    pub threads: Option<ThreadOutcome>,
    /// The services of a graph.
    pub graph: Option<GraphOutcome>,
    /// Kinds of requests, in the workload's order, if there are several.
    pub kinds: Vec<KindOutcome>,
}

/// Outcome of a kind of requests in the measured interval.
#[derive(Clone, Debug, PartialEq)]
pub struct KindOutcome {
    /// Name of the kind.
    pub name: String,
    /// Latency objective, from the request's issue.
    pub objective: Nanos,
    /// Ends of its requests; second attempts and unfinished requests are not counted.
    pub counts: RequestCounts,
    /// Latency of its completed requests, from issue to response.
    pub latency: Percentiles,
}

/// Outcome of a graph of services in the measured interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphOutcome {
    /// Share of the CPU time spent on clients' requests that ended without a result in time.
    pub wasted_cpu: f64,
    /// The same share at services that call others.
    pub wasted_upstream_cpu: f64,
    /// Outcome of each service.
    pub services: Vec<ServiceOutcome>,
}

/// Outcome of a service of a graph in the measured interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceOutcome {
    /// Name of the service.
    pub name: String,
    /// Latency of its answered calls, at their callers.
    pub latency: Percentiles,
    /// Calls that reached its servers.
    pub received: u64,
    /// Of these, rejected by the service or downstream.
    pub rejected: u64,
    /// CPU time spent over CPU time available, 0..=1.
    pub cpu_utilization: f64,
    /// Part of the objective of this service.
    pub objective: Nanos,
}

/// Work of a tier's threads in the measured interval (µTune, OSDI'18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadOutcome {
    /// Setup at the end.
    pub setup: Option<Setup>,
    /// Number of changes of setup in the whole run.
    pub switches: u64,
    /// Number of wake-ups. This and the following values are present if the plant counts them; the
    /// simulator does.
    pub wakeups: Option<u64>,
    /// Number of switches between threads on busy CPUs.
    pub context_switches: Option<u64>,
    /// Number of waits for a lock of fronts, links or queue.
    pub contended: Option<u64>,
    /// CPU time of polls that found nothing.
    pub empty_polls: Option<Nanos>,
    /// Calls to leaves, if the leaves have a tail model.
    pub second_calls: Option<SecondCallOutcome>,
}

/// Calls of a tier to its leaves, and their second attempts, in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondCallOutcome {
    /// Number of calls, each counted once.
    pub calls: u64,
    /// Of these, sent again because they were slow.
    pub hedged: u64,
    /// Of these, sent again because they were rejected.
    pub retried: u64,
    /// Number of answered requests.
    pub answered: u64,
    /// Of these, answered without the result of a call.
    pub partial: u64,
}

/// Outcome of a lock in the measured interval; on a real machine of all locks of one name and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LockOutcome {
    /// Its name.
    pub name: String,
    /// Kind of lock, such as `mutex`, if the application names it.
    pub kind: Option<&'static str>,
    /// Length of the counted interval.
    pub span: Nanos,
    /// Number of acquisitions by requests.
    pub acquisitions: u64,
    /// Of these, the ones after a wait.
    pub contended: u64,
    /// Number of requests that gave up the lock and were rejected.
    pub rejected: u64,
    /// Mean wait of acquisitions, ns; 0 for those without a wait.
    pub wait_mean_ns: f64,
    /// Median wait; on a real machine up to twice too high.
    pub wait_p50: Nanos,
    /// 99th percentile of the wait; on a real machine up to twice too high.
    pub wait_p99: Nanos,
    /// Maximum wait. A real lock does not measure it.
    pub wait_max: Option<Nanos>,
    /// Number of waiting requests at the end of the run. A real lock does not measure it.
    pub waiting: Option<u64>,
    /// Share of time in which a request held the lock, 0..=1, including a mutex holder's wait for a
    /// core. A real lock does not measure it.
    pub utilization: Option<f64>,
}

/// Window of a time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowOutcome {
    /// Its length.
    pub length: Nanos,
    /// Client-side view of the window.
    pub clients: ClientWindow,
    /// Counters of the server in the window; absent for a real server.
    pub server: Option<ServerCounts>,
    /// State of the server at the end of the window.
    pub state: ServerState,
    /// Mean number of cores that the server held, with core allocation.
    pub cores: Option<f64>,
    /// Setup of a tier's threads at the end of the window.
    pub setup: Option<Setup>,
}

/// Client-side view of a window of the time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClientWindow {
    /// Its start, from the start of the run.
    #[serde(rename = "start_ns", serialize_with = "time")]
    pub start: Time,
    /// Counts of the window: `offered` and `late` by intended time, ends by the time at which the
    /// client learns of them.
    pub counts: RequestCounts,
    /// Latency, from the intended time, of the responses received in the window.
    pub latency: Percentiles,
    /// Mean time from a request's departure to its rejection, over rejections received in the
    /// window.
    pub reject_delay_mean_ns: f64,
}

/// State of a server at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerState {
    /// Gauges of the controller.
    pub gauges: Gauges,
    /// Queueing delay.
    pub delay: Nanos,
}

/// Window of the fine time series, which shows how fast goodput recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FineWindow {
    /// Its start, from the start of the run.
    #[serde(rename = "start_ns", serialize_with = "time")]
    pub start: Time,
    /// Number of responses received in the window.
    pub completed: u64,
    /// Of these, within the objective.
    pub good: u64,
}

/// Use of the cores in the measured interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreUsage {
    /// Mean number of cores that the server held, cores being granted included.
    pub mean_cores: f64,
    /// Mean number of cores that searched for work.
    pub mean_searching: f64,
    /// Share of all cores' time left for a best-effort application, while cores were parked. The
    /// time of a core's handover counts for neither.
    pub best_effort_share: f64,
    /// Number of granted cores.
    pub grants: u64,
    /// Number of parked cores.
    pub parks: u64,
}

/// Serializes a time as its number of nanoseconds.
fn time<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}
