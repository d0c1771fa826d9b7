//! Demand of clients on a server, as plain data: how many clients, how much, how spaced, how long it takes.

use crate::service_time::ServiceTime;
use leeward_core::units::{Nanos, Rate};

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
    pub service: ServiceTime,
}

/// From `from` on, all clients together issue `rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Start, from the beginning of the run.
    pub from: Nanos,
    /// Requests per second of all clients.
    pub rate: Rate,
}

/// How each client spaces its requests: of all but the last whatever the server does (open loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps, each client with a phase of its own.
    Constant,
    /// Exponential gaps, of a rate that changes for all clients together between a peak and a valley, at exponential intervals of the same
    /// mean: a Poisson process modulated by a Markov chain of two states. The mean rate is the demand's.
    Bursts {
        /// The peak's rate, in thousandths of the mean, 1,000 to 2,000; the valley is as far below.
        peak_permille: u16,
        /// Mean length of a peak, and of a valley.
        mean_length: Nanos,
    },
    /// A closed loop: a client has one request at a time, and thinks for an exponential time after it has ended, however that was. The demand
    /// is what all clients would issue if a request took no time.
    Closed,
}

/// How the demand divides among clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shares {
    /// Evenly.
    Equal,
    /// Client k of 1, 2, … gets a share proportional to k^−s.
    Zipf(f64),
}
