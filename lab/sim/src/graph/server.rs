//! A server of a graph: anonymous cores, queues for new, resumable and credit-waiting requests, and
//! its controller.

use super::jobs::JobId;
use super::retry_budget::RetryBudget;
use leeward_core::server::{ServerHalves, Session, Signals};
use leeward_core::units::{Nanos, Priority, Time};
use std::collections::VecDeque;
use std::ops::Range;

/// A server.
pub(super) struct Server {
    /// Service that it runs.
    pub(super) service: u32,
    pub(super) cores: u32,
    /// Number of cores that work.
    pub(super) busy: u32,
    /// Requests received and not answered.
    pub(super) in_flight: u64,
    /// Received requests, each with its arrival time.
    pub(super) requests: VecDeque<(Time, JobId)>,
    /// Resumable requests, each with the time since which it could run.
    pub(super) ready: VecDeque<(Time, JobId)>,
    /// Requests that wait for credits.
    pub(super) waiting: VecDeque<JobId>,
    pub(super) halves: ServerHalves,
    pub(super) sessions: Vec<Session>,
    /// Link of each session.
    pub(super) links: Vec<u32>,
    /// Its callees, one group per call of its service.
    pub(super) groups: Vec<CalleeGroup>,
    /// Events since the last tick.
    pub(super) since_tick: Signals,
    /// First core that is asked for sessions to wake.
    pub(super) first_woken: usize,
    /// CPU time of messages that belong to no request; the next work pays for it.
    pub(super) debt: Nanos,
    /// CPU time spent since the warm-up.
    pub(super) cpu_time: u128,
}

/// The servers that can take one call.
#[derive(Clone, Debug)]
pub(super) struct CalleeGroup {
    /// Call of the graph.
    pub(super) call: usize,
    /// Stage in which it is made.
    pub(super) stage: u16,
    /// Links to these servers.
    pub(super) links: Range<u32>,
    /// W: sum of the windows of its links.
    pub(super) credits: i64,
    /// Reservations at its links that no call has used yet.
    pub(super) reserved: u32,
    /// These calls of requests that wait for credits.
    pub(super) waiting: u32,
    /// Number of these that the servers know.
    pub(super) reported: u32,
    /// Smallest threshold that one of its links received.
    pub(super) threshold: Priority,
    /// f: calls per request, a moving average.
    pub(super) per_request: f64,
    /// Budget for retries of this call.
    pub(super) retries: RetryBudget,
}

impl CalleeGroup {
    /// Weight of a new request in the average.
    const WEIGHT: f64 = 1.0 / 256.0;

    /// Records that a request makes `calls` of these calls.
    pub(super) fn record_calls(&mut self, calls: u16) {
        self.per_request += (f64::from(calls) - self.per_request) * Self::WEIGHT;
    }
}

impl Server {
    /// Age of the oldest request that no core has received.
    pub(super) fn packet_delay(&self, now: Time) -> Nanos {
        self.requests.front().map_or(Nanos::ZERO, |(since, _)| now.since(*since))
    }

    /// Age of the oldest request that could continue.
    pub(super) fn run_delay(&self, now: Time) -> Nanos {
        self.ready.front().map_or(Nanos::ZERO, |(since, _)| now.since(*since))
    }

    /// Whether a core is free while a request waits for one.
    pub(super) fn idles_despite_work(&self) -> bool {
        self.busy < self.cores && !(self.requests.is_empty() && self.ready.is_empty())
    }
}
