//! Simulation of all runs of a scenario on a thread pool. Results are in the order of the plan, so
//! that the same scenario and seed give the same bytes for any number of threads.

use crate::assemble::{append_rows, empty_results, with_verdicts};
pub use crate::error::RunError;
use crate::execute::{check_services, run_parallel, simulate, unknown_plant};
pub use crate::options::{Options, Progress};
use crate::plan::plan;
use crate::policy_curves;
use crate::real;
use crate::rows::{Rows, setup};
use crate::scenario::Scenario;
use leeward_core::registry::Registry;
use leeward_outcome::results::{PointRow, Results};
use std::sync::atomic::AtomicBool;

/// Simulates all runs of a scenario. Calls `progress` after each run, from any thread. Once
/// `cancel` is set no further run starts, and current runs end.
///
/// # Errors
/// See [`RunError`].
pub fn run(
    scenario: &Scenario,
    registry: &Registry,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Results, RunError> {
    run_selected(scenario, registry, options, &|_| true, progress, cancel)
}

/// Simulates those runs of a scenario that `is_needed` selects, by the columns of their row that
/// are known before. Otherwise like [`run`].
///
/// # Errors
/// See [`RunError`].
pub(crate) fn run_selected(
    scenario: &Scenario,
    registry: &Registry,
    options: &Options,
    is_needed: &dyn Fn(&PointRow) -> bool,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Results, RunError> {
    match options.plant.as_str() {
        "sim" => {}
        "real" => return real::run(scenario, registry, options, progress, &|_| {}, cancel),
        _ => return Err(unknown_plant(options)),
    }
    check_services(scenario)?;
    let mut planned = plan(scenario, registry, options.seed)?;
    planned.retain(|run| is_needed(&setup(run)));
    policy_curves::train_simulated(scenario, &mut planned, options, progress, cancel)?;
    let rows =
        run_parallel(&planned, options, progress, cancel, |run| Ok(Rows::from_outcome(run, &simulate(run, cancel)?)))?;
    let mut results = empty_results(scenario, options);
    rows.into_iter().for_each(|rows| append_rows(&mut results, rows));
    Ok(with_verdicts(results, scenario))
}
