//! Demand of clients on a server, as plain data: how many clients, how much, how spaced, how long it takes.

use crate::service::Service;
use leeward_control::units::{Nanos, Rate};

/// The clients and what they ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// How many (≥ 1).
    pub clients: u32,
    /// How requests are spaced.
    pub arrivals: Arrivals,
    /// How the demand divides among clients.
    pub shares: Shares,
    /// Total demand over time: segments by start, the first at 0.
    pub demand: Vec<Segment>,
    /// How long a request takes on a core.
    pub service: Service,
}

/// From `from` on, all clients together issue `rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Start, from the beginning of the run.
    pub from: Nanos,
    /// Requests per second of all clients.
    pub rate: Rate,
}

/// How each client spaces its requests (open loop: whatever the server does).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps, each client with a phase of its own.
    Constant,
}

/// How the demand divides among clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shares {
    /// Evenly.
    Equal,
    /// Client k of 1, 2, … gets a share proportional to k^−s.
    Zipf(f64),
}
