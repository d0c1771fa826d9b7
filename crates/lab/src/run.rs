//! All runs of a scenario on a pool of threads. Results come back in the order of the plan, so that the same scenario
//! and seed give the same bytes on any number of threads.

use crate::assemble::{add, blank, judged};
pub use crate::error::RunError;
use crate::execute::{check_services, in_parallel, pool, simulate, unknown_plant};
pub use crate::options::{Options, Progress};
use crate::plan::{PlannedRun, plan};
use crate::real;
use crate::rows::Rows;
use crate::scenario::{Scenario, ThreadingSpec};
use crate::threading::train::train;
use leeward_control::registry::Registry;
use leeward_control::threading::curves::Curves;
use leeward_outcome::results::Results;
use leeward_sim::SimConfig;
use leeward_sim::config::Tier;
use std::sync::Arc;
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
    let mut planned = plan(scenario, registry, options.seed)?;
    trained(scenario, &mut planned, options, cancel)?;
    let rows = in_parallel(&planned, options, progress, cancel, |run| Ok(Rows::of(run, &simulate(run)?)))?;
    let mut results = blank(scenario, options);
    rows.into_iter().for_each(|rows| add(&mut results, rows));
    Ok(judged(results, scenario))
}

/// Gives the policies of threading their curves, trained once per tier, arrivals and round trip.
fn trained(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    options: &Options,
    cancel: &AtomicBool,
) -> Result<(), RunError> {
    let Some(training) = &scenario.training else { return Ok(()) };
    let mut known: Vec<(SimConfig, Arc<Curves>)> = Vec::new();
    let alike = |a: &SimConfig, b: &SimConfig| {
        let ground = |config: &SimConfig| {
            let tier = config.tier.clone().map(|tier| Tier { policy: None, threading: training.setups[0], ..*tier });
            (tier, config.workload.arrivals, config.workload.clients, config.workload.service.clone(), config.network)
        };
        ground(a) == ground(b)
    };
    for run in planned {
        if !run.variant.threading.as_ref().is_some_and(ThreadingSpec::needs_curves) {
            continue;
        }
        let found = known.iter().find(|(config, _)| alike(config, &run.config)).map(|(_, curves)| Arc::clone(curves));
        let curves = match found {
            Some(curves) => curves,
            None => {
                let name = run.name();
                let of_run = |source| RunError::Sim { run: format!("training for {name}"), source };
                let work = || train(&run.config, training, run.capacity, options.seed, cancel);
                let trained = pool(options)?.install(work).map_err(of_run)?;
                let curves = Arc::new(trained.ok_or(RunError::Cancelled)?);
                known.push((run.config.clone(), Arc::clone(&curves)));
                curves
            }
        };
        if let Some(policy) = run.config.tier.as_mut().and_then(|tier| tier.policy.as_mut()) {
            policy.curves = Some(curves);
        }
    }
    Ok(())
}
