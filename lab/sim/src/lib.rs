//! A deterministic discrete-event simulator of a microsecond-scale server, its network and its clients: the plant in
//! which the controllers of `leeward-controllers` run at the papers' scale. One run is single-threaded and a pure function
//! of its [`SimConfig`]: the same bytes on any machine.
//!
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_sim::{SimConfig, service::Service, simulate};
//!
//! // A tenth of a second of the papers' testbed at 1.4 times its capacity.
//! let service = Service::Exponential(Nanos::from_micros(10));
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
//! No algorithm lives here; what a core, a queue, a wire and a client *are* lives here.

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

/// A run that can't be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The configuration is impossible.
    #[error("{0}")]
    Config(String),
    /// The algorithm refuses its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The run does not move on: its events cause each other at one instant.
    #[error(
        "the run does not move on from {}: more than {events} events at that instant, with {policy}; give the server's cores time to \
         come or to look (`delay`, `search` and `check` of the allocator, `costs`)",
        Nanos(at.0)
    )]
    Stuck {
        /// The instant.
        at: Time,
        /// Events at that instant that no run should need.
        events: u64,
        /// The allocator, or the controller where there is none, as in "allocator `delay`".
        policy: String,
    },
    /// The caller wished to stop before the run was over.
    #[error("stopped before the run was over")]
    Stopped,
}

/// The wish of nobody.
static NO_STOP: AtomicBool = AtomicBool::new(false);

/// Runs one simulation, single-threaded: the same arguments give the same report on any machine.
///
/// # Errors
/// An impossible configuration, parameters that can't stand together, or a run that never moves on from some instant.
pub fn simulate(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Result<RunOutcome, SimError> {
    simulate_until(config, algorithm, params, &NO_STOP)
}

/// Like [`simulate`], until `stop` is set: the run then ends before its next event.
///
/// # Errors
/// Those of [`simulate`]; [`SimError::Stopped`] after the wish.
pub fn simulate_until(
    config: &SimConfig,
    algorithm: &Algorithm,
    params: &Params,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    if algorithm.name == oracle::ALGORITHM.name && (config.graph.is_some() || config.tier.is_some()) {
        return Err(SimError::Config(
            "the oracle knows a server of cores and locks; of tiers and graphs it does not".into(),
        ));
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

/// Like [`simulate`], with the server's halves taken through `wrap` first: to record what they decide
/// (`leeward_recording::record`), or to look on.
///
/// # Errors
/// Those of [`simulate`]; replicas, which would need several wrappers.
pub fn simulate_wrapped(
    config: &SimConfig,
    algorithm: &Algorithm,
    params: &Params,
    wrap: impl FnOnce(ServerHalves) -> ServerHalves,
) -> Result<RunOutcome, SimError> {
    simulate_server(config, algorithm, params, wrap, None, &NO_STOP)
}

/// Plays one run of a server. `margin` is the oracle's, if it is not to learn one.
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
        return Err(SimError::Config("what replicas decide can't be looked at through one wrapper".into()));
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
