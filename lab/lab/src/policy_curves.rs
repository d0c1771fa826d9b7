//! Curves for the policies of a scenario's runs: trained before the first run where the runs will be, in the simulator or on this machine,
//! once per tier and arrivals. How training works is [`crate::training`]'s.

use crate::error::RunError;
use crate::execute::thread_pool;
use crate::options::Options;
use crate::plan::PlannedRun;
use crate::scenario::{Scenario, ThreadingSpec, TrainingSpec};
use crate::training::{MeasuredTier, SimulatedTier, TrainingOutcome, TrainingPlan, TrainingProgress, train};
use leeward_core::units::{Nanos, Rate};
use leeward_plant::Placement;
use leeward_sim::SimConfig;
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curves, TailPercentile};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Highest load over the capacity.
const MAX_LOAD_RATIO: f64 = 1.1;
/// Requests of a first measurement, as a part of those after which a setup is known well enough.
const FIRST_DIVISOR: u64 = 3;
/// Time after which a real training ends with what there is: the highest loads come first.
const TRAINING_TIMEOUT: Duration = Duration::from_secs(600);

/// Gives the policies of threading curves of the simulator.
pub(crate) fn train_simulated(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    options: &Options,
    cancel: &AtomicBool,
) -> Result<(), RunError> {
    train_curves(scenario, planned, options.seed, &mut |ground, plan| {
        let bench = SimulatedTier::new(ground.clone());
        thread_pool(options)?.install(|| train(&bench, plan, &|_| {}, &|| false, cancel))
    })
}

/// Gives the policies of threading curves of this machine, and says in words what was trained. `step` hears what has been measured.
pub(crate) fn train_measured(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    (seed, placement): (u64, &Placement),
    step: &dyn Fn(&str),
    cancel: &AtomicBool,
) -> Result<String, RunError> {
    let mut words = String::new();
    train_curves(scenario, planned, seed, &mut |ground, plan| {
        let began = Instant::now();
        let measured =
            |TrainingProgress { setup, load, .. }: TrainingProgress| step(&format!("{setup} at {:.0}/s", load.0));
        let bench = MeasuredTier::new(ground.clone(), placement.clone());
        let trained = train(&bench, plan, &measured, &|| began.elapsed() > TRAINING_TIMEOUT, cancel)?;
        words += &describe(&trained);
        Ok(trained)
    })?;
    Ok(words)
}

/// A training as the results tell it.
fn describe(
    TrainingOutcome { curves, excluded: left_out, measurements: measured, timed_out: cut_short }: &TrainingOutcome,
) -> String {
    let names: Vec<String> = curves.all().iter().map(|curve| curve.setup.to_string()).collect();
    let mut words = format!("\nPolicies choose among {}, by {measured} measurements here.", names.join(", "));
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(ThreadingSetup::to_string).collect();
        words += &format!(" Left out, since they kept up with less than two loads: {}.", names.join(", "));
    }
    if *cut_short {
        words += " The time for training was over before the lowest loads: below their lowest, curves are level.";
    }
    words
}

fn train_curves(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    seed: u64,
    train: &mut dyn FnMut(&SimConfig, &TrainingPlan) -> Result<TrainingOutcome, RunError>,
) -> Result<(), RunError> {
    let Some(training) = &scenario.training else { return Ok(()) };
    let mut known: Vec<(SimConfig, Arc<Curves>)> = Vec::new();
    for run in planned {
        if !run.variant.threading.as_ref().is_some_and(ThreadingSpec::needs_curves) {
            continue;
        }
        let ground = training_config(&run.config, training, seed);
        let found = known.iter().find(|(config, _)| *config == ground).map(|(_, curves)| Arc::clone(curves));
        let curves = match found {
            Some(curves) => curves,
            None => {
                let curves = Arc::new(train(&ground, &plan(training, run.capacity))?.curves);
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
fn training_config(config: &SimConfig, training: &TrainingSpec, seed: u64) -> SimConfig {
    let mut ground = config.clone();
    if let (Some(tier), Some(first)) = (&mut ground.tier, training.setups.first()) {
        (tier.threading, tier.policy) = (ThreadingSetup::Setup(*first), None);
    }
    ground.workload.demand.clear();
    (ground.warmup, ground.duration) = (Nanos::ZERO, Nanos::ZERO);
    (ground.window, ground.fine_window, ground.seed) = (None, None, seed);
    ground
}

fn plan(training: &TrainingSpec, capacity: Rate) -> TrainingPlan {
    let most = u64::from(training.requests);
    TrainingPlan {
        setups: training.setups.iter().map(|setup| ThreadingSetup::Setup(*setup)).collect(),
        loads: Some((Rate(training.min_load), Rate((capacity.0 * MAX_LOAD_RATIO).max(training.min_load * 2.0)))),
        tail: TailPercentile::P99,
        min_requests: most.div_ceil(FIRST_DIVISOR),
        max_requests: most,
    }
}
