//! A deterministic discrete-event simulator of a microsecond-scale server, its network and its clients: the plant in
//! which the controllers of `leeward-control` run at the papers' scale. One run is single-threaded and a pure function
//! of its [`SimConfig`]: the same bytes on any machine.
//!
//! No algorithm lives here; what a core, a queue, a wire and a client *are* lives here.

#![forbid(unsafe_code)]

pub mod config;
pub mod report;
mod rng;
pub mod service;

pub use config::SimConfig;
pub use report::SimReport;

use leeward_control::params::{ParamError, Params};
use leeward_control::registry::Algorithm;

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
}

/// Runs one simulation.
///
/// # Errors
/// An impossible configuration or parameters that can't stand together.
pub fn simulate(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Result<SimReport, SimError> {
    let _ = (config, algorithm, params);
    Err(SimError::Config("the engine is still being written".into()))
}
