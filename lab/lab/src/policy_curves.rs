//! Curves for the threading policies of a scenario's runs, trained before the first run on the same
//! plant, once per tier and arrival process.
//!
//! Does not contain the training ([`crate::training`]).

use crate::error::RunError;
use crate::execute::thread_pool;
use crate::options::{Options, Progress};
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

/// Maximum trained load, as a ratio of the capacity.
const MAX_LOAD_RATIO: f64 = 1.1;
/// Divisor of a training's request number for the first measurement of a setup.
const FIRST_DIVISOR: u64 = 3;
/// Time limit of a real training; the highest loads are trained first.
const TRAINING_TIMEOUT: Duration = Duration::from_secs(600);

/// Trains the threading policies' curves in the simulator.
pub(crate) fn train_simulated(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<(), RunError> {
    let training = Progress { done: 0, total: planned.len(), is_training: true };
    train_curves(scenario, planned, options.seed, &mut |config, plan| {
        let bench = SimulatedTier::new(config.clone());
        thread_pool(options)?.install(|| train(&bench, plan, &|_| progress(training), &|| false, cancel))
    })
}

/// Trains the threading policies' curves on this machine, and returns a description. Calls `step`
/// with the progress.
pub(crate) fn train_measured(
    scenario: &Scenario,
    planned: &mut [PlannedRun<'_>],
    (seed, placement): (u64, &Placement),
    step: &dyn Fn(&str),
    cancel: &AtomicBool,
) -> Result<String, RunError> {
    let mut description = String::new();
    train_curves(scenario, planned, seed, &mut |config, plan| {
        let began = Instant::now();
        let measured =
            |TrainingProgress { setup, load, .. }: TrainingProgress| step(&format!("{setup} at {:.0}/s", load.0));
        let bench = MeasuredTier::new(config.clone(), placement.clone());
        let trained = train(&bench, plan, &measured, &|| began.elapsed() > TRAINING_TIMEOUT, cancel)?;
        description += &describe(&trained);
        Ok(trained)
    })?;
    Ok(description)
}

/// Describes a training for the results.
fn describe(
    TrainingOutcome { curves, excluded: left_out, measurements: measured, timed_out: cut_short }: &TrainingOutcome,
) -> String {
    let names: Vec<String> = curves.all().iter().map(|curve| curve.setup.to_string()).collect();
    let mut text = format!("\nPolicies choose among {}, by {measured} measurements here.", names.join(", "));
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(ThreadingSetup::to_string).collect();
        text += &format!(" Left out, since they kept up with less than two loads: {}.", names.join(", "));
    }
    if *cut_short {
        text += " The time for training was over before the lowest loads: below their lowest, curves are level.";
    }
    text
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
        let base = training_config(&run.config, training, seed);
        let found = known.iter().find(|(config, _)| *config == base).map(|(_, curves)| Arc::clone(curves));
        let curves = match found {
            Some(curves) => curves,
            None => {
                let curves = Arc::new(train(&base, &plan(training, run.capacity))?.curves);
                known.push((base, Arc::clone(&curves)));
                curves
            }
        };
        if let Some(policy) = run.config.tier.as_mut().and_then(|tier| tier.policy.as_mut()) {
            policy.curves = Some(curves);
        }
    }
    Ok(())
}

/// The part of a configuration that determines the curves: without policy, demand and duration.
fn training_config(config: &SimConfig, training: &TrainingSpec, seed: u64) -> SimConfig {
    let mut base = config.clone();
    if let (Some(tier), Some(first)) = (&mut base.tier, training.setups.first()) {
        (tier.threading, tier.policy) = (ThreadingSetup::Setup(*first), None);
    }
    base.workload.demand.clear();
    (base.warmup, base.duration) = (Nanos::ZERO, Nanos::ZERO);
    (base.window, base.fine_window, base.seed) = (None, None, seed);
    base
}

fn plan(training: &TrainingSpec, capacity: Rate) -> TrainingPlan {
    let limit = u64::from(training.requests);
    TrainingPlan {
        setups: training.setups.iter().map(|setup| ThreadingSetup::Setup(*setup)).collect(),
        loads: Some((Rate(training.min_load), Rate((capacity.0 * MAX_LOAD_RATIO).max(training.min_load * 2.0)))),
        tail: TailPercentile::P99,
        min_requests: limit.div_ceil(FIRST_DIVISOR),
        max_requests: limit,
    }
}
