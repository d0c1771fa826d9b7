//! The results of an experiment: what `leeward run --json` prints, what lies in a results folder, what the report draws.
//! The schema is documented in `docs/results.md` and stable: fields are added, never renamed.

use serde::{Deserialize, Serialize};

/// Results of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this schema.
    pub schema: u32,
    /// The scenario's id.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// The paper and figure it redraws.
    pub source: String,
    /// Purpose of the experiment and how to read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `sim` or `real`.
    pub plant: String,
    /// The base seed; each point carries its own.
    pub seed: u64,
    /// Whether this was a `--quick` run.
    pub quick: bool,
    /// `--set` overrides, as given.
    pub overrides: Vec<String>,
    /// The plots the scenario asks for.
    pub plots: Vec<Plot>,
    /// The machine, for runs of the real plant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// Points, one per controller variant, demand, client count, service and seed.
    pub points: Vec<Point>,
    /// Time series, for scenarios that ask for them.
    pub windows: Vec<Window>,
    /// Reports of each shift of demand, for scenarios with shifting demand.
    pub shifts: Vec<Shift>,
    /// Reports of each lock of each point, for applications with locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<Lock>,
    /// Reports of each server of each point, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// The papers' claims and what we measured.
    pub claims: Vec<Claim>,
}

/// A plot of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plot {
    /// Heading.
    pub title: String,
    /// `points`, `windows`, `locks` or `replicas`.
    pub table: String,
    /// A numeric field of the table, or `label` for one group of bars per variant.
    pub x: String,
    /// A numeric field of the table.
    pub y: String,
    /// Field whose distinct values are one curve each.
    pub series: String,
    /// `field=value` filters, all of which must hold.
    pub only: Vec<String>,
    /// `linear` or `log`.
    pub x_scale: String,
    /// `linear` or `log`.
    pub y_scale: String,
    /// `line`, `bars` or `scatter`.
    pub kind: String,
}

/// Outcome of a run: a steady state under one controller variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The algorithm.
    pub controller: String,
    /// The variant: the algorithm's name unless the scenario says otherwise.
    pub label: String,
    /// Total demand, requests per second (for shifting demand: its mean over the measured part).
    pub demand_rps: f64,
    /// Demand over the plant's capacity.
    pub demand_ratio: f64,
    /// Clients.
    pub clients: u32,
    /// The distribution of service times, as written in the scenario.
    pub service: String,
    /// Mean service time, µs.
    pub service_mean_us: f64,
    /// Capacity of the plant without control, requests per second.
    pub capacity_rps: f64,
    /// The scenario's `p`, such as the share of requests that take a lock, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The scenario's `r`, such as the share of the work that is done with a lock, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r: Option<f64>,
    /// The latency objective, µs.
    pub slo_us: f64,
    /// The run's seed.
    pub seed: u64,
    /// Responses per second.
    pub throughput_rps: f64,
    /// Responses per second within the SLO, counted from the request's issue.
    pub goodput_rps: f64,
    /// Median latency of responses, µs.
    pub p50_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// 99.9th percentile, µs.
    pub p999_us: f64,
    /// Mean, µs.
    pub mean_us: f64,
    /// Requests rejected by the server over requests received by it.
    pub drop_rate: f64,
    /// Of these, the ones that did not get a lock, over requests received, for applications with locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_drop_rate: Option<f64>,
    /// Requests expired or displaced at clients over requests issued.
    pub expiry_rate: f64,
    /// Requests that the client's half dropped by itself over requests issued.
    pub throttle_rate: f64,
    /// Requests that were sent to a second server over requests issued, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_rate: Option<f64>,
    /// 99th percentile of the time from a request's issue to the news that its first server does not serve it, a drop or no
    /// credit in time, µs, where there are several; 0 without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_p99_us: Option<f64>,
    /// Mean time from a request's departure to its drop's arrival, µs; 0 without drops.
    pub reject_delay_mean_us: f64,
    /// CPU time spent over CPU time available.
    pub cpu_utilization: f64,
    /// Messages received by the server per response.
    pub rx_per_request: f64,
    /// Messages sent by the server per response.
    pub tx_per_request: f64,
    /// Messages received by the server per second.
    pub rx_mps: f64,
    /// Messages sent by the server per second.
    pub tx_mps: f64,
    /// Requests issued in the measured part.
    pub offered: u64,
    /// Requests still under way at the run's end.
    pub unfinished: u64,
    /// Network round trip without queueing, µs.
    #[serde(default)]
    pub rtt_us: f64,
    /// The policy of core allocation, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub allocator: String,
    /// The policy that balances work over the cores, as the scenario names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub balancing: String,
    /// Mean number of cores that the server held, where an allocator grants and parks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_mean: Option<f64>,
    /// Share of the CPU time of all cores that was left for a best-effort application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort_share: Option<f64>,
    /// Goodput that the simulator, told of the machine that was measured, predicts for this run of the real plant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_goodput_rps: Option<f64>,
    /// The 99th percentile that it predicts, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_p99_us: Option<f64>,
}

/// The machine of a real run, as measured before it, per service and number of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The service it was measured with.
    pub service: String,
    /// Clients.
    pub clients: u32,
    /// The server's cores, each on a CPU of its own.
    pub cores: u32,
    /// Whether the clients had a CPU of their own.
    pub clients_apart: bool,
    /// Most responses per second without control.
    pub capacity_rps: f64,
    /// Round trip when nothing waits, µs.
    pub rtt_us: f64,
    /// CPU time besides the service per request, µs.
    pub cost_us: f64,
    /// Share of a busy CPU's time that the machine takes away.
    pub stalled: f64,
}

/// A window of a time series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The algorithm.
    pub controller: String,
    /// The variant.
    pub label: String,
    /// The run's seed.
    pub seed: u64,
    /// Start, seconds from the run's begin.
    pub start_s: f64,
    /// Length, ms.
    pub length_ms: f64,
    /// Demand, requests per second.
    pub demand_rps: f64,
    /// Responses per second.
    pub throughput_rps: f64,
    /// Responses per second within the SLO.
    pub goodput_rps: f64,
    /// 99th percentile latency of the responses in it, µs; 0 without any.
    pub p99_us: f64,
    /// Drops received per second.
    pub drops_rps: f64,
    /// Mean reject delay, µs; 0 without drops.
    pub reject_delay_mean_us: f64,
    /// Queueing delay at its end, µs.
    pub delay_us: f64,
    /// The credit pool at its end, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit_pool: Option<f64>,
    /// Credits issued at its end, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits_issued: Option<f64>,
    /// Mean number of cores that the server held, where an allocator grants and parks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
}

/// Effect of a shift of demand on a controller variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// The algorithm.
    pub controller: String,
    /// The variant.
    pub label: String,
    /// The run's seed.
    pub seed: u64,
    /// When demand changed, seconds from the run's begin.
    pub at_s: f64,
    /// Demand before, requests per second.
    pub from_rps: f64,
    /// Demand after.
    pub to_rps: f64,
    /// Goodput it settles at: the median over the second half of the time to the next shift.
    pub settled_goodput_rps: f64,
    /// Time until goodput is back at 95 % of that or more (mean over the 20 ms that follow) for good: no collapse below
    /// 80 % follows in the first half of the time to the next shift. ms; the time to the next shift if it never does.
    pub recovery_ms: f64,
    /// Whether it did recover before the next shift.
    pub recovered: bool,
    /// Time until the first 20 ms with 95 % of that or more, whatever follows, ms.
    #[serde(default)]
    pub reached_ms: f64,
    /// Lowest 20 ms goodput over the settled one.
    pub goodput_dip_ratio: f64,
    /// Highest p99 of a window of the time series, µs.
    pub p99_peak_us: f64,
    /// Highest mean reject delay of a window of the time series, µs.
    pub reject_delay_peak_us: f64,
}

/// A lock in a run; on the real plant all locks of one name and kind, the 20 that were waited for longest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// The lock's name; where there are several servers, with `@` and which one's.
    pub lock: String,
    /// Kind of lock on the real plant, such as `mutex`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The algorithm.
    pub controller: String,
    /// The variant.
    pub label: String,
    /// The distribution of service times, as written in the scenario.
    pub service: String,
    /// Total demand, requests per second.
    pub demand_rps: f64,
    /// Demand over the plant's capacity.
    pub demand_ratio: f64,
    /// Clients.
    pub clients: u32,
    /// The scenario's `p`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The scenario's `r`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r: Option<f64>,
    /// The run's seed.
    pub seed: u64,
    /// How often requests got it, per second.
    pub acquired_rps: f64,
    /// Of these, the share that had to wait for it.
    pub waited_rate: f64,
    /// How often requests did without it and ended as drops, per second.
    pub refused_rps: f64,
    /// The share of the server's drops that were refusals of this lock; 0 without drops.
    #[serde(default)]
    pub drop_share: f64,
    /// Mean wait of those that got it, µs; those that got it at once waited 0.
    pub wait_mean_us: f64,
    /// Median of the same, µs; on the real plant up to twice too much.
    #[serde(default)]
    pub wait_p50_us: f64,
    /// 99th percentile of the same, µs; on the real plant up to twice too much.
    pub wait_p99_us: f64,
    /// Requests that wait for it at the run's end; not known of real ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// The share of time in which somebody held it; not known of real ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}

/// A server of several in a run. Its requests are attempts, and its latencies begin with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Which, from 1.
    pub replica: u32,
    /// The algorithm.
    pub controller: String,
    /// The variant.
    pub label: String,
    /// The distribution of service times, as written in the scenario.
    pub service: String,
    /// Total demand on all servers, requests per second.
    pub demand_rps: f64,
    /// Demand over the capacity of all servers.
    pub demand_ratio: f64,
    /// Clients.
    pub clients: u32,
    /// The scenario's `p`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The scenario's `r`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r: Option<f64>,
    /// The run's seed.
    pub seed: u64,
    /// Requests per second that its sessions were given, sent or not.
    pub attempts_rps: f64,
    /// Its responses per second.
    pub throughput_rps: f64,
    /// 99th percentile of their latency, µs.
    pub p99_us: f64,
    /// Requests that it rejected over requests that it received.
    pub drop_rate: f64,
    /// Requests that expired or were displaced at its sessions over those they were given.
    pub expiry_rate: f64,
    /// CPU time spent over CPU time available.
    pub cpu_utilization: f64,
}

/// A claim of a paper, and what we measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Short id, unique in its scenario.
    pub id: String,
    /// The claim in words.
    pub text: String,
    /// Measurement of the paper, in its words or numbers.
    pub paper: String,
    /// Our measurement, with unit; min–max over seeds where there are several.
    pub measured: String,
    /// The measured number itself; absent when it could not be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Values accepted as reproduced, in words, such as `at least 1.04`.
    pub accepted: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why not, or what differs, as found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured within what is accepted.
    Reproduced,
    /// Measured outside of it.
    NotReproduced,
    /// This run did not measure it (another plant, or a point left out by `--quick`).
    NotApplicable,
}
