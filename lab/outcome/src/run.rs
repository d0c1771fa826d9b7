//! Outcome of a run, on whichever plant. A value that a plant cannot know is an `Option`. Raw units; rows of results
//! are elsewhere.

use crate::counts::{RequestCounts, ServerCounts};
use crate::distribution::Percentiles;
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_threading::Setup;
use serde::{Serialize, Serializer};

/// Outcome of a run. Counts and latencies cover the measured part (after warm-up) unless they say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Length of the measured part.
    pub measured: Nanos,
    /// How requests ended in the measured part.
    pub counts: RequestCounts,
    /// The same over the whole run, warm-up included, and what was still under way at its end.
    pub totals: RequestCounts,
    /// Counts of the server's requests and messages in the measured part.
    pub server: ServerCounts,
    /// True if requests take locks. Otherwise `server.refused_at_locks` says nothing.
    pub uses_locks: bool,
    /// Latency of completed requests, from issue to response.
    pub latency: Percentiles,
    /// Time from a request's departure to its drop's arrival at the client.
    pub reject_delay: Percentiles,
    /// Time from a request's arrival at the server to the start of its execution, of those that began to execute. A real
    /// server does not measure it.
    pub waiting: Option<Percentiles>,
    /// CPU time spent over CPU time available, 0..=1.
    pub cpu_utilization: f64,
    /// Mean number of requests in the server, queued or executing. A real server does not measure it.
    pub mean_in_server: Option<f64>,
    /// Mean time in the server of the requests that left it, ns; of a real one, of those that it answered.
    pub mean_sojourn_ns: f64,
    /// Books that did not balance, the first few, in words; empty unless a plant or a controller has a defect.
    ///
    /// The simulator checks on every run: each request has exactly one end; no core idles while something is queued;
    /// Little's law as an identity (the area under the number of requests in the server is the sum of their times there, to
    /// the nanosecond), for each lock's waiters, too; locks go to those that have waited longest. With its `audit` also, each
    /// control period: a controller's issued credits are the sum of its sessions' windows; every request is where the books
    /// say.
    pub violations: Vec<String>,
    /// Outcomes of the locks, in the application's order; on a real machine those first that were waited for longest.
    pub locks: Vec<LockOutcome>,
    /// Time series, if asked for; covers the whole run.
    pub windows: Vec<WindowOutcome>,
    /// Fine time series, if asked for; covers the whole run.
    pub fine_windows: Vec<FineWindow>,
    /// The controller's state at the end.
    pub gauges: Gauges,
    /// Events that the simulator processed, whole run.
    pub events: Option<u64>,
    /// Use of the cores, where an allocator grants and parks them.
    pub cores: Option<CoreUsage>,
    /// From a request's issue to the news that its first server does not serve it, a drop or no credit in time, where there
    /// are several servers.
    pub failure_delay: Option<Percentiles>,
    /// Lateness of a real load generator that did not keep its schedule: the run is no measurement of the server. `None`: it
    /// kept the schedule, or was simulated.
    pub lateness: Option<Percentiles>,
    /// Each server by itself, where there are several: its requests are attempts, its latencies begin with them, and its
    /// objective is its own. The whole's messages, rejections and CPU time are the sum of theirs, and its locks are only here.
    pub replicas: Vec<RunOutcome>,
    /// The threads of a tier.
    pub threads: Option<ThreadOutcome>,
    /// Services of a graph.
    pub graph: Option<GraphOutcome>,
    /// Kinds of requests, in the workload's order, where there are several.
    pub kinds: Vec<KindOutcome>,
}

/// A kind of requests in the measured part of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct KindOutcome {
    /// Its name.
    pub name: String,
    /// Latest response that is in time, from the request's issue.
    pub objective: Nanos,
    /// How its requests ended; without those that a second server got, and those under way.
    pub counts: RequestCounts,
    /// Latency of its completed requests, from issue to response.
    pub latency: Percentiles,
}

/// Work of a graph of services in the measured part of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphOutcome {
    /// Share of the CPU time that was spent on requests of clients that ended without a result in time.
    pub wasted_cpu: f64,
    /// The same of the CPU time at services that ask others.
    pub wasted_upstream_cpu: f64,
    /// Each service.
    pub services: Vec<ServiceOutcome>,
}

/// A service of a graph in the measured part of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceOutcome {
    /// Its name.
    pub name: String,
    /// Latency of its answered calls, as their callers see it.
    pub latency: Percentiles,
    /// Calls that reached its servers.
    pub received: u64,
    /// Of these, dropped, by itself or behind.
    pub rejected: u64,
    /// CPU time spent over CPU time available, 0..=1.
    pub cpu_utilization: f64,
    /// Its part of the objective.
    pub objective: Nanos,
}

/// Work of the threads of a tier in the measured part of a run (µTune, OSDI'18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadOutcome {
    /// Setup at the end.
    pub setup: Option<Setup>,
    /// Changes of setup, over the whole run.
    pub switches: u64,
    /// Threads woken; this and the following where the plant counts it: the simulator does.
    pub wakeups: Option<u64>,
    /// Changes between threads on busy CPUs.
    pub context_switches: Option<u64>,
    /// Times at which a thread had to wait for a lock of fronts, links or queue.
    pub contended: Option<u64>,
    /// CPU time of polls that found nothing yet.
    pub empty_polls: Option<Nanos>,
    /// Calls to leaves that are late, drop or have copies.
    pub second_calls: Option<SecondCallOutcome>,
}

/// Calls of a tier to its leaves, and those that were made twice, in the measured part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondCallOutcome {
    /// Calls, each counted once.
    pub calls: u64,
    /// Of these, made again because they took long.
    pub hedged: u64,
    /// Of these, made again because they were dropped.
    pub retried: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Of these, answered without the result of a call.
    pub partial: u64,
}

/// A lock, in the measured part; on a real machine all locks of one name and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LockOutcome {
    /// Its name.
    pub name: String,
    /// Kind of lock, such as `mutex`, where the application says so.
    pub kind: Option<&'static str>,
    /// The time over which this was counted.
    pub span: Nanos,
    /// How often a request got it.
    pub acquisitions: u64,
    /// Of these, how often it had to wait.
    pub contended: u64,
    /// How often a request did without it and ended as a drop.
    pub rejected: u64,
    /// Mean wait of those that got it, ns; those that got it at once waited 0.
    pub wait_mean_ns: f64,
    /// Median of the same; on a real machine up to twice too much.
    pub wait_p50: Nanos,
    /// 99th percentile of the same; on a real machine up to twice too much.
    pub wait_p99: Nanos,
    /// Longest of the same. A real lock does not tell.
    pub wait_max: Option<Nanos>,
    /// Requests that wait for it at the run's end. A real lock does not tell.
    pub waiting: Option<u64>,
    /// The share of time in which somebody held it, 0..=1. Whoever gets a mutex holds it while waiting for a core, too. A real
    /// lock does not tell.
    pub utilization: Option<f64>,
}

/// Window of the time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowOutcome {
    /// Its length.
    pub length: Nanos,
    /// Clients' view of the window.
    pub clients: ClientWindow,
    /// Counts of the server in the window; a real one is not asked.
    pub server: Option<ServerCounts>,
    /// The server at its end.
    pub state: ServerState,
    /// Mean number of cores that the server held, where an allocator grants and parks them.
    pub cores: Option<f64>,
    /// Setup of a tier's threads at its end.
    pub setup: Option<Setup>,
}

/// A window of the time series as clients see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClientWindow {
    /// Its start, from the start of the run.
    #[serde(rename = "start_ns", serialize_with = "time")]
    pub start: Time,
    /// Counts of the window: `offered` and `late` by intended time, the ends by the time at which the client learns of
    /// them.
    pub counts: RequestCounts,
    /// Latency, from the intended time, of the responses that came in it.
    pub latency: Percentiles,
    /// Mean time from their requests' departures to the drops that came in it.
    pub reject_delay_mean_ns: f64,
}

/// A server at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerState {
    /// The controller's state.
    pub gauges: Gauges,
    /// The queueing delay.
    pub delay: Nanos,
}

/// Window of the fine time series: enough to see how fast goodput comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FineWindow {
    /// Its start, from the start of the run.
    #[serde(rename = "start_ns", serialize_with = "time")]
    pub start: Time,
    /// Responses that came in it.
    pub completed: u64,
    /// Of those, within the objective.
    pub good: u64,
}

/// Use of the cores in the measured part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreUsage {
    /// Mean number of cores that the server held, those on their way included.
    pub mean_cores: f64,
    /// Mean number of cores that looked for work.
    pub mean_searching: f64,
    /// Share of all cores' time that was left for a best-effort application: cores that were parked. The time that a
    /// core takes to change hands counts for neither.
    pub best_effort_share: f64,
    /// Cores granted.
    pub grants: u64,
    /// Cores given back.
    pub parks: u64,
}

/// A time as its number of nanoseconds.
fn time<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}
