//! Report of a simulation: counts, latencies, messages and the time series. Plain data, in raw units.

pub use crate::scheduling::CoreUsage;
use leeward_control::server::Gauges;
use leeward_control::units::{Nanos, Time};

/// Results of a single run. Counts and latencies cover the measured part (after warm-up) unless they say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct SimReport {
    /// Length of the measured part.
    pub measured: Nanos,
    /// How requests ended in the measured part.
    pub counts: Counts,
    /// The same over the whole run, warm-up included, and what was still under way at its end.
    pub totals: Totals,
    /// Latency of completed requests, from issue to response.
    pub latency: Percentiles,
    /// Time from a request's departure to its drop's arrival at the client.
    pub reject_delay: Percentiles,
    /// Time from a request's arrival at the server to the start of its execution, of those that began to execute.
    pub waiting: Percentiles,
    /// CPU time spent over CPU time available, 0..=1.
    pub cpu_utilization: f64,
    /// Mean number of requests in the server, queued or executing.
    pub mean_in_server: f64,
    /// Mean time in the server of the requests that left it, ns.
    pub mean_sojourn_ns: f64,
    /// Books that did not balance, the first few, in words; empty unless the simulator or a controller has a defect.
    /// Checked on every run: each request has exactly one end; no core idles while something is queued; Little's law
    /// as an identity (the area under the number of requests in the server is the sum of their times there, to the
    /// nanosecond), for each lock's waiters, too; locks go to those that have waited longest. With [`crate::SimConfig::audit`] also, each control period: a controller's issued credits are the
    /// sum of its sessions' windows; every request is where the books say.
    pub violations: Vec<String>,
    /// Reports of the application's locks, in their order; empty without any.
    pub locks: Vec<LockReport>,
    /// Time series, if asked for; covers the whole run.
    pub windows: Vec<WindowReport>,
    /// Fine time series, if asked for; covers the whole run.
    pub fine: Vec<FineWindow>,
    /// The controller's state at the end.
    pub gauges: Gauges,
    /// Events processed, whole run.
    pub events: u64,
    /// Use of the cores, where an allocator grants and parks them.
    pub cores: Option<CoreUsage>,
    /// From a request's issue to the news that its first server does not serve it, a drop or no credit in time, where there
    /// are several servers.
    pub failure_delay: Percentiles,
    /// Each server by itself, where there are several ([`crate::config::Replicas`]): its requests are attempts, its
    /// latencies begin with them, and its objective is its own. The whole's messages, rejections and CPU time are the sum of
    /// theirs, and its locks are only here.
    pub replicas: Vec<SimReport>,
}

/// How requests ended, and messages, in the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Issued by applications.
    pub offered: u64,
    /// Sent to a second server, where there are several.
    pub sent_again: u64,
    /// Responses received by clients.
    pub completed: u64,
    /// Responses received within the SLO.
    pub good: u64,
    /// Drops received by clients.
    pub dropped: u64,
    /// Expired while waiting at a client.
    pub expired: u64,
    /// Displaced from a full client queue.
    pub overflowed: u64,
    /// Ended at the client because the algorithm expected a drop.
    pub throttled: u64,
    /// Replies that came after the application had given up.
    pub timed_out: u64,
    /// Requests received by the server.
    pub received: u64,
    /// Requests rejected by the server.
    pub rejected: u64,
    /// Of these, the ones that did not get a lock.
    pub refused_at_locks: u64,
    /// Messages received by the server, of any kind.
    pub rx_messages: u64,
    /// Messages sent by the server, of any kind.
    pub tx_messages: u64,
}

impl Counts {
    /// Counts since `earlier`.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            offered: self.offered - earlier.offered,
            sent_again: self.sent_again - earlier.sent_again,
            completed: self.completed - earlier.completed,
            good: self.good - earlier.good,
            dropped: self.dropped - earlier.dropped,
            expired: self.expired - earlier.expired,
            overflowed: self.overflowed - earlier.overflowed,
            throttled: self.throttled - earlier.throttled,
            timed_out: self.timed_out - earlier.timed_out,
            received: self.received - earlier.received,
            rejected: self.rejected - earlier.rejected,
            refused_at_locks: self.refused_at_locks - earlier.refused_at_locks,
            rx_messages: self.rx_messages - earlier.rx_messages,
            tx_messages: self.tx_messages - earlier.tx_messages,
        }
    }
}

impl Counts {
    /// Adds what one server of several has counted inside: messages and rejections.
    pub(crate) fn add_servers(&mut self, server: &Counts) {
        self.received += server.received;
        self.rejected += server.rejected;
        self.refused_at_locks += server.refused_at_locks;
        self.rx_messages += server.rx_messages;
        self.tx_messages += server.tx_messages;
    }
}

/// Report of a lock, in the measured part.
#[derive(Clone, Debug, PartialEq)]
pub struct LockReport {
    /// Its name.
    pub name: String,
    /// How often a request got it.
    pub acquisitions: u64,
    /// Of these, how often it had to wait.
    pub waited: u64,
    /// How often a request did without it and ended as a drop.
    pub refusals: u64,
    /// How long those waited that got it; zero for those that got it at once.
    pub wait: Percentiles,
    /// Requests that wait for it at the run's end.
    pub waiting: u64,
    /// The share of time in which the lock was held, 0..=1. A request that gets a mutex holds it while waiting for a
    /// core, too.
    pub utilization: f64,
}

/// Conservation over the whole run: `offered` = the sum of all the others but `sent_again`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Issued by applications.
    pub offered: u64,
    /// Ended as a response.
    pub completed: u64,
    /// Ended as a drop.
    pub dropped: u64,
    /// Ended when the application gave up, after they had left.
    pub timed_out: u64,
    /// Sent to a second server, where there are several; no end.
    pub sent_again: u64,
    /// Ended at the client, for whatever reason.
    pub ended_at_client: u64,
    /// Waiting at clients, on the wire or in the server when the run ended.
    pub unfinished: u64,
}

impl Totals {
    /// Whether every request has exactly one end, or is still under way.
    pub fn balance(&self) -> bool {
        self.offered == self.completed + self.dropped + self.timed_out + self.ended_at_client + self.unfinished
    }
}

/// A distribution's percentiles, with the histogram's resolution of three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Samples.
    pub count: u64,
    /// Mean, ns; exact, not the histogram's.
    pub mean_ns: f64,
    /// Median.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// 99.9th percentile.
    pub p999: Nanos,
    /// Largest.
    pub max: Nanos,
}

/// Window of the time series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowReport {
    /// Start of the window.
    pub start: Time,
    /// Its length.
    pub length: Nanos,
    /// Counts of the window. Completions count when the response arrives at the client.
    pub counts: Counts,
    /// Latency of the requests completed in it.
    pub latency: Percentiles,
    /// Delay of the drops received in it.
    pub reject_delay: Percentiles,
    /// The controller's state at its end.
    pub gauges: Gauges,
    /// Queueing delay at its end.
    pub delay: Nanos,
    /// Mean number of cores that the server held, where an allocator grants and parks them.
    pub cores: Option<f64>,
}

/// Window of the fine time series: enough to see how fast goodput comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FineWindow {
    /// Start of the window.
    pub start: Time,
    /// Responses received by clients.
    pub completed: u64,
    /// Completions within the SLO.
    pub good: u64,
}
