//! All runs of a scenario on a pool of threads. Results come back in the order of the plan, so that the same scenario
//! and seed give the same bytes on any number of threads.

use crate::assemble::blank;
use crate::claims::judge;
pub use crate::error::RunError;
use crate::measure;
pub use crate::options::{Options, Progress};
use crate::plan::plan;
use crate::real;
use crate::scenario::Scenario;
use crate::shifts::shifts;
use crate::simulate::{check_services, in_parallel, simulate_one, unknown_plant};
use leeward_control::registry::Registry;
use leeward_outcome::results::Results;
use std::sync::atomic::AtomicBool;

/// Runs everything a scenario asks for. `progress` is called after each run, from any thread; once `cancel` is set no
/// further run starts.
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
    match options.plant.as_str() {
        "sim" => {}
        "real" => return real::run(scenario, registry, options, progress, &|_| {}, cancel),
        _ => return Err(unknown_plant(options)),
    }
    check_services(scenario)?;
    let planned = plan(scenario, registry, options.seed)?;
    let outcomes = in_parallel(&planned, options, progress, cancel, |run| {
        let report = simulate_one(run)?;
        let locks_and_replicas = (measure::locks(run, &report), measure::replicas(run, &report));
        let over_time = (measure::windows(run, &report), shifts(run, &report));
        Ok((measure::point(run, &report), over_time, locks_and_replicas))
    })?;
    let mut results = blank(scenario, options);
    for (point, (windows, shifts), (locks, replicas)) in outcomes {
        results.points.push(point);
        results.windows.extend(windows);
        results.shifts.extend(shifts);
        results.locks.extend(locks);
        results.replicas.extend(replicas);
    }
    results.claims = scenario.claims.iter().map(|claim| judge(claim, &results)).collect();
    Ok(results)
}
