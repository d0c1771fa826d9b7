//! Requests through a graph of services: clients ask the first service, which asks others before it answers. Every hop runs a
//! controller of its own, unchanged: its halves at the server, its client at the caller. No policy lives here, and nothing of
//! the simulation of one server but queue of events, clients' shells and books.
//!
//! - [`model`]: the description, as plain data, and what is impossible about it; [`shape`]: its arithmetic.
//! - `links`: callers' clients, one per caller and server.
//! - `server`: a server's queues, cores, sessions and controller.
//! - `jobs`: requests, one record per call, and what was spent on them.
//! - `open`: a run before its first event; `run`: the events; `serve`: what cores do with a request; `calls`: how it asks others; `control`: ticks.

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

/// Runs a graph.
///
/// # Errors
/// A graph that is impossible, parameters that can't stand together, or a run that never moves on from some instant or that `stop` has ended.
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
