//! Curves for the policies of a scenario's runs: trained before the first run where the runs will be, in the simulator or on this machine,
//! once per tier and arrivals. How training works is [`crate::training`]'s.

use crate::error::RunError;
use crate::execute::pool;
use crate::options::Options;
use crate::plan::PlannedRun;
use crate::scenario::{Scenario, ThreadingSpec, Training};
use crate::training::{Bench, MeasuredTier, Plan, Progress, SimulatedTier, train};
use leeward_control::threading::Threading;
use leeward_control::threading::curves::{Curves, Tail};
use leeward_control::units::{Nanos, Rate};
use leeward_sim::SimConfig;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Highest load over the capacity.
const HIGHEST: f64 = 1.1;
/// Requests of a first measurement, as a part of those after which a setup is known well enough.
const FIRST: u64 = 3;

/// Gives the policies of threading curves of the simulator.
pub(crate) fn simulated(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    options: &Options,
    cancel: &AtomicBool,
) -> Result<(), RunError> {
    trained(scenario, planned, options.seed, &|ground, training, capacity| {
        let work = || curves(&SimulatedTier::new(ground.clone()), training, capacity, &|_| {}, cancel);
        pool(options)?.install(work)
    })
}

/// Gives the policies of threading curves of so many CPUs of this machine. `step` hears, in words, what is measured.
pub(crate) fn measured(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    (seed, cpus): (u64, u32),
    step: &dyn Fn(&str),
    cancel: &AtomicBool,
) -> Result<(), RunError> {
    trained(scenario, planned, seed, &|ground, training, capacity| {
        let measured = |Progress { setup, load, .. }: Progress| step(&format!("{setup} at {:.0}/s", load.0));
        curves(&MeasuredTier::new(ground.clone(), cpus)?, training, capacity, &measured, cancel)
    })
}

fn trained(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    seed: u64,
    curves: &dyn Fn(&SimConfig, &Training, Rate) -> Result<Curves, RunError>,
) -> Result<(), RunError> {
    let Some(training) = &scenario.training else { return Ok(()) };
    let mut known: Vec<(SimConfig, Arc<Curves>)> = Vec::new();
    for run in planned {
        if !run.variant.threading.as_ref().is_some_and(ThreadingSpec::needs_curves) {
            continue;
        }
        let ground = ground(&run.config, training, seed);
        let found = known.iter().find(|(config, _)| *config == ground).map(|(_, curves)| Arc::clone(curves));
        let curves = match found {
            Some(curves) => curves,
            None => {
                let curves = Arc::new(curves(&ground, training, run.capacity)?);
                known.push((ground, Arc::clone(&curves)));
                curves
            }
        };
        if let Some(policy) = run.config.tier.as_mut().and_then(|tier| tier.policy.as_mut()) {
            policy.curves = Some(curves);
        }
    }
    Ok(())
}

/// The part of a run that decides its curves: neither the policy, nor the demand, nor how long it lasts.
fn ground(config: &SimConfig, training: &Training, seed: u64) -> SimConfig {
    let mut ground = config.clone();
    if let (Some(tier), Some(first)) = (&mut ground.tier, training.setups.first()) {
        (tier.threading, tier.policy) = (Threading::Setup(*first), None);
    }
    ground.workload.demand.clear();
    (ground.warmup, ground.duration) = (Nanos::ZERO, Nanos::ZERO);
    (ground.window, ground.fine_window, ground.seed) = (None, None, seed);
    ground
}

fn curves(
    bench: &dyn Bench,
    training: &Training,
    capacity: Rate,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
) -> Result<Curves, RunError> {
    let most = u64::from(training.requests);
    let plan = Plan {
        setups: training.setups.iter().map(|setup| Threading::Setup(*setup)).collect(),
        loads: Some((Rate(training.lowest), Rate((capacity.0 * HIGHEST).max(training.lowest * 2.0)))),
        tail: Tail::P99,
        least: most.div_ceil(FIRST),
        most,
    };
    Ok(train(bench, &plan, progress, &|| false, cancel)?.curves)
}
