//! Demand of clients on a server, as plain data: number of clients, rates, spacing and service
//! times.

use crate::service_time::ServiceTime;
use leeward_core::units::{Nanos, Rate};

/// The clients and their requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Number of clients (≥ 1).
    pub clients: u32,
    /// Spacing of requests.
    pub arrivals: Arrivals,
    /// Shares of the clients in the demand.
    pub shares: Shares,
    /// Total demand over time: segments by start, the first at 0.
    pub demand: Vec<Segment>,
    /// Service time of a request.
    pub service: ServiceTime,
}

/// A segment of demand: from `from` on, all clients together issue `rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Start, from the beginning of the run.
    pub from: Nanos,
    /// Requests per second of all clients together.
    pub rate: Rate,
}

/// Spacing of each client's requests. All but [`Arrivals::Closed`] are open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps; each client has its own phase.
    Constant,
    /// Exponential gaps whose rate alternates between a peak and a valley, for all clients
    /// together.
    ///
    /// The states last exponential times of the same mean: a Poisson process modulated by a Markov
    /// chain of two states. The mean rate is the demand's.
    Bursts {
        /// Rate of the peak, in thousandths of the mean, 1,000 to 2,000; the valley is as far below
        /// the mean.
        peak_permille: u16,
        /// Mean length of a peak and of a valley.
        mean_length: Nanos,
    },
    /// Closed loop: a client has one request at a time, and issues the next after an exponential
    /// think time.
    ///
    /// The think time begins with each end of a request, also a rejection. The demand is the
    /// clients' total rate if requests took no time.
    Closed,
}

/// Shares of the clients in the demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shares {
    /// Equal shares.
    Equal,
    /// Client k of 1, 2, … gets a share proportional to k^−s.
    Zipf(f64),
}
