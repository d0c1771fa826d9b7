//! A deterministic discrete-event simulator of a microsecond-scale server, its network and its
//! clients.
//! It is the plant in which the controllers of `leeward-controllers` run at the papers' scale. One
//! run is single-threaded and a pure function of its [`SimConfig`]: the same bytes on any machine.
//!
//! For studies of controllers, and for authors of algorithms. Entry points: [`SimConfig`] and
//! [`simulate`].
//!
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};
//!
//! // A tenth of a second of the papers' testbed at 1.4 times its capacity.
//! let service = ServiceTime::Exponential(Nanos::from_micros(10));
//! let config = SimConfig {
//!     warmup: Nanos::from_millis(50),
//!     duration: Nanos::from_millis(100),
//!     ..SimConfig::testbed(service, 1.4)
//! };
//! let breakwater = leeward_controllers::builtin().find("breakwater")?.clone();
//! let params = breakwater.params(&[])?;
//! let report = simulate(&config, &breakwater, &params)?;
//! assert!(report.latency.p99 < config.slo);
//! assert!(report.counts.good * 10 > report.counts.completed * 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contains the model of cores, queues, wires and clients. Does not contain algorithms.

#![forbid(unsafe_code)]

mod audit;
mod check;
mod clients;
pub mod config;
mod event;
mod event_queue;
pub mod graph;
mod heap;
mod kinds;
mod locks;
pub mod oracle;
mod pacing;
mod pending_responses;
mod replicas;
mod requests;
mod run;
mod run_guard;
pub mod scheduling;
mod server;
mod server_queues;
mod settling;
mod sleep;
mod stalls;
mod stats;
pub mod threads;
mod timer;
mod wire;

pub use config::SimConfig;
pub use leeward_outcome::RunOutcome;
pub use leeward_workload::{rng, service_time};

use leeward_core::params::{ParamError, Params};
use leeward_core::registry::Algorithm;
use leeward_core::server::ServerHalves;
use leeward_core::units::{Nanos, Time};
use scheduling::scheduler::Scheduler;
use std::sync::atomic::AtomicBool;

/// An error that prevents or ends a run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The configuration is impossible.
    #[error("{0}")]
    Config(String),
    /// The algorithm rejects its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// Simulated time no longer advances: the events of one instant cause each other.
    #[error(
        "the run does not advance beyond {}: more than {events} events at that time, with {policy}; set delays above zero \
         (`delay`, `search` and `check` of the allocator, `costs`)",
        Nanos(at.0)
    )]
    Stuck {
        /// The instant.
        at: Time,
        /// Number of events at that instant, more than a valid run needs.
        events: u64,
        /// The allocator, or the controller if there is none, as in "allocator `delay`".
        policy: String,
    },
    /// The caller stopped the run.
    #[error("stopped before the run was over")]
    Stopped,
}

/// A stop flag that is never set.
static NO_STOP: AtomicBool = AtomicBool::new(false);

/// Runs one simulation on the calling thread; the same arguments give the same report on any
/// machine.
///
/// # Errors
/// An impossible configuration, parameters that contradict each other, or a run whose time does not
/// advance.
pub fn simulate(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Result<RunOutcome, SimError> {
    simulate_until(config, algorithm, params, &NO_STOP)
}

/// Like [`simulate`], but ends before the next event once `stop` is set.
///
/// # Errors
/// Those of [`simulate`]; [`SimError::Stopped`] if `stop` was set.
pub fn simulate_until(
    config: &SimConfig,
    algorithm: &Algorithm,
    params: &Params,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    if algorithm.name == oracle::ALGORITHM.name && (config.graph.is_some() || config.tier.is_some()) {
        return Err(SimError::Config("the oracle supports a server of cores and locks, but no tiers or graphs".into()));
    }
    if let Some(graph) = &config.graph {
        check::check(config).map_err(SimError::Config)?;
        return graph::simulate(config, graph, algorithm, params, stop);
    }
    if let Some(tier) = &config.tier {
        check::check(config).map_err(SimError::Config)?;
        return threads::simulate(config, tier, algorithm, params, stop);
    }
    if let Some(replicas) = config.replicas {
        check::check(config).map_err(SimError::Config)?;
        return replicas::simulate(config, replicas, algorithm, params, stop);
    }
    if algorithm.name == oracle::ALGORITHM.name {
        return oracle::best(|margin| simulate_server(config, algorithm, params, |halves| halves, margin, stop));
    }
    simulate_server(config, algorithm, params, |halves| halves, None, stop)
}

/// Like [`simulate`], with the server's halves passed through `wrap` first: to record their
/// decisions (`leeward_recording::record`) or to observe them.
///
/// # Errors
/// Those of [`simulate`]; replicas, because they would need several wrappers.
pub fn simulate_wrapped(
    config: &SimConfig,
    algorithm: &Algorithm,
    params: &Params,
    wrap: impl FnOnce(ServerHalves) -> ServerHalves,
) -> Result<RunOutcome, SimError> {
    simulate_server(config, algorithm, params, wrap, None, &NO_STOP)
}

/// Simulates one run of a server. `margin` is the oracle's fixed margin; `None`: the oracle learns
/// one.
fn simulate_server(
    config: &SimConfig,
    algorithm: &Algorithm,
    params: &Params,
    wrap: impl FnOnce(ServerHalves) -> ServerHalves,
    margin: Option<f64>,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    check::check(config).map_err(SimError::Config)?;
    if config.replicas.is_some() {
        return Err(SimError::Config("one wrapper can't observe the decisions of several replicas".into()));
    }
    let scheduler = match &config.server.scheduling {
        None => None,
        Some(model) => {
            let scheduler = Scheduler::new(model, config.server.cores, config.seed).map_err(SimError::Config)?;
            Some(Box::new(scheduler))
        }
    };
    let halves = wrap(algorithm.server(params, &config.environment())?);
    run::Run::new(config, algorithm, params, halves, scheduler, stop)?.with_margin(margin).finish()
}
