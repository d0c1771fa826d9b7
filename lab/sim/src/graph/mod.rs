//! Simulation of a graph of services: clients send requests to the first service, which calls
//! others before it responds.
//!
//! Every hop runs its own controller, unchanged: its server halves at the callee, its client half
//! at the caller. Does not contain policies. It shares only the event queue, client shells and
//! statistics with the simulation of one server.
//!
//! - [`model`]: the description, as plain data, and its validation; [`analysis`]: its arithmetic.
//! - `links`: callers' client shells, one per caller and server.
//! - `server`: a server's queues, cores, sessions and controller.
//! - `jobs`: requests, one record per call, and the CPU time spent on them.
//! - `build`: construction of a run; `run`: the event loop; `serve`: a core's work on a request;
//!   `calls`: calls to other servers; `control`: ticks.

pub mod analysis;
mod build;
mod calls;
mod control;
mod event;
mod jobs;
mod links;
pub mod model;
mod retry_budget;
mod run;
mod serve;
mod server;

use crate::SimError;
use crate::config::SimConfig;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_outcome::RunOutcome;
use model::Graph;
use std::sync::atomic::AtomicBool;

/// Simulates a graph.
///
/// # Errors
/// An invalid graph, parameters that contradict each other, a run whose time does not advance, or
/// one that `stop` has ended.
pub(crate) fn simulate(
    config: &SimConfig,
    graph: &Graph,
    algorithm: &Algorithm,
    params: &Params,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    graph.check().map_err(|(_, problem)| SimError::Config(problem))?;
    run::Run::new(config, graph, algorithm, params, stop)?.finish()
}
