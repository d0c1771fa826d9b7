//! A tier under a threading model (µTune, OSDI'18): threads on CPUs that wake, poll, contend for locks, and ask leaves. Every setup that
//! [`leeward_threading`] can write down runs here, behind any controller. No policy lives here.
//!
//! - [`model`]: the description, as plain data; [`presets`]: the costs of known machines; [`wakes`]: how long wake-ups take.
//! - `cpus`: threads on CPUs, as an operating system shares them.
//! - `inlet`, `lock`: connections that threads watch, and contention, both as arithmetic.
//! - `crew`, `turn`, `serve`, `switch`: what threads do, between requests, with a request, and when the setup changes.
//! - `governor`, `policy`: a policy of threading in the midst of it. `controller`, `admission`: a controller around it.
//! - `jobs`, `leaves`: requests, and the servers that they ask. `hedges`, `second`: calls that are made again at another copy.

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

/// Runs a tier.
///
/// # Errors
/// A tier that is impossible, parameters that can't stand together, or a run that never moves on from some instant or that `stop` has
/// ended.
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
