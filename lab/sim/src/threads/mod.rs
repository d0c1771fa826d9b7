//! Simulation of a tier under a threading model (µTune, OSDI'18): threads on CPUs that wake, poll,
//! contend for locks, and call leaves.
//!
//! It runs every setup of [`leeward_threading`] behind any controller. Does not contain policies.
//!
//! - [`model`]: the description, as plain data; [`presets`]: the costs of known machines;
//!   [`wakes`]: wake-up latencies.
//! - `cpus`: threads on CPUs, scheduled like an operating system does.
//! - `connection_set`, `lock`: connections that threads watch, and contention, both as arithmetic.
//! - `thread_pool`, `poll`, `serve`, `switch`: a thread's state, its work between requests and on a
//!   request, and changes of setup.
//! - `governor`, `policy`: the threading policy. `controller`, `admission`: admission control.
//! - `jobs`, `leaves`: requests, and the servers that they call. `second_call_state`,
//!   `second_calls`: second attempts at another copy.

mod admission;
mod connection_set;
mod controller;
mod cpus;
mod event;
mod governor;
mod jobs;
mod leaves;
mod lock;
pub mod model;
mod policy;
mod poll;
pub mod presets;
mod run;
mod second_call_state;
mod second_calls;
mod serve;
mod switch;
mod thread_pool;
pub mod wakes;

use crate::SimError;
use crate::config::SimConfig;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_outcome::RunOutcome;
use model::Tier;
use std::sync::atomic::AtomicBool;

/// Simulates a tier.
///
/// # Errors
/// An invalid tier, parameters that contradict each other, a run whose time does not advance, or
/// one that `stop` has ended.
pub(crate) fn simulate(
    config: &SimConfig,
    tier: &Tier,
    algorithm: &Algorithm,
    params: &Params,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    tier.check().map_err(SimError::Config)?;
    run::Run::new(config, tier, algorithm, params, stop)?.finish()
}
