//! Views of the plant that a controller in Python is shown. Times are in microseconds, as in the tables.

use leeward_control::algorithms::breakwater::PoolState;
use leeward_control::registry;
use leeward_control::server;
use leeward_control::units::Nanos;
use pyo3::prelude::*;

fn micros(span: Nanos) -> f64 {
    span.as_micros_f64()
}

/// Surroundings that a controller must know and can't decide.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
pub(crate) struct Environment {
    /// Cores of the server.
    cores: u32,
    /// Network round trip without queueing, µs.
    rtt_us: f64,
    /// The latency objective, µs.
    slo_us: f64,
}

impl Environment {
    pub(super) fn of(environment: &registry::Environment) -> Self {
        Environment { cores: environment.cores, rtt_us: micros(environment.rtt), slo_us: micros(environment.slo) }
    }
}

/// State of the plant, and the events since the last tick.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
pub(crate) struct Signals {
    /// Now, µs from the run's begin.
    now_us: f64,
    /// Queueing delay: that of the packet and that of the task which wait longest, µs.
    delay_us: f64,
    /// Age of the oldest packet that waits, µs.
    packet_delay_us: f64,
    /// Age of the oldest task that waits, µs.
    run_delay_us: f64,
    /// Requests received.
    arrivals: u64,
    /// Requests answered with a result.
    completions: u64,
    /// Requests rejected.
    drops: u64,
    /// Of these, requests that were refused a lock.
    lock_drops: u64,
}

impl Signals {
    pub(super) fn of(signals: &server::Signals) -> Self {
        Signals {
            now_us: signals.now.0 as f64 / 1e3,
            delay_us: micros(signals.delay()),
            packet_delay_us: micros(signals.packet_delay),
            run_delay_us: micros(signals.run_delay),
            arrivals: signals.arrivals,
            completions: signals.completions,
            drops: signals.drops,
            lock_drops: signals.lock_drops,
        }
    }
}

/// A request that has been received and parsed.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
pub(crate) struct Arrival {
    /// Now, µs from the run's begin.
    now_us: f64,
    /// Queueing delay of the server, µs.
    delay_us: f64,
    /// Requests that still wait at the client.
    demand: u32,
    /// How important the request is: 1 is the most important, 128 the least.
    priority: u8,
    /// A random number from 0 up to and without 1, drawn from the run's seed.
    random: f64,
    /// Tenant for which the request was sent.
    tenant: u32,
    /// How much work the request is.
    cost: u32,
    /// Core that received it.
    core: u32,
}

impl Arrival {
    pub(super) fn of(arrival: &server::Arrival, core: u32) -> Self {
        Arrival {
            now_us: arrival.now.0 as f64 / 1e3,
            delay_us: micros(arrival.delay),
            demand: arrival.demand,
            priority: arrival.priority.level(),
            random: fraction(arrival.random),
            tenant: arrival.tenant.0,
            cost: arrival.cost.0,
            core,
        }
    }
}

/// Random bits as a number from 0 up to and without 1.
pub(super) fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The credit pool of Breakwater's server.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
pub(crate) struct Pool {
    /// Credits that there are.
    total: i64,
    /// Credits that clients hold.
    issued: i64,
    /// Clients that are registered.
    sessions: i64,
}

impl Pool {
    pub(super) fn of(state: &PoolState) -> Self {
        Pool { total: state.total, issued: state.issued, sessions: state.sessions }
    }
}
