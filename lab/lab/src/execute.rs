//! Execution of planned runs on a plant: one, or many in parallel if the plant is simulated. Does
//! not contain their rows (`rows`).

use crate::error::RunError;
use crate::options::{Options, Progress};
use crate::plan::PlannedRun;
use crate::scenario::Scenario;
use leeward_outcome::RunOutcome;
use leeward_plant::{BudgetRule, Plant, PlantRun, SimulatedPlant, Snapshot};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Rejects the real plant for commands that need the simulator.
pub(crate) fn check_simulated(options: &Options) -> Result<(), RunError> {
    match options.plant.as_str() {
        "sim" => Ok(()),
        "real" => Err(RunError::SimulatorOnly),
        _ => Err(unknown_plant(options)),
    }
}

/// Rejects services that can't be simulated.
pub(crate) fn check_services(scenario: &Scenario) -> Result<(), RunError> {
    let refuse = |text: &str| Err(RunError::SimUnsupported(text.into()));
    if let Some(service) = scenario.workload.services.iter().find(|service| !service.is_simulated()) {
        return refuse(&service.text);
    }
    if scenario.controllers.iter().any(|variant| variant.derived_budget) {
        return refuse("acquire = unless-congested, without a budget,");
    }
    let threadings = scenario.controllers.iter().filter_map(|variant| variant.threading.as_ref());
    if let Some(spec) = threadings.into_iter().find(|spec| spec.setup.is_some_and(|setup| setup.setup().is_none())) {
        return refuse(&spec.text);
    }
    Ok(())
}

/// Error of an unknown plant.
pub(crate) fn unknown_plant(options: &Options) -> RunError {
    RunError::Plant(options.plant.chars().take(40).collect())
}

/// Executes one planned run on `plant`.
pub(crate) fn execute(
    plant: &dyn Plant,
    run: &PlannedRun<'_>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&Snapshot),
) -> Result<RunOutcome, RunError> {
    let budget = if run.variant.derived_budget { BudgetRule::FromObjective } else { BudgetRule::Configured };
    let asked = PlantRun { algorithm: run.algorithm, params: &run.params, config: &run.config, budget };
    let outcome = plant.run(&asked, stop, watch).map_err(|error| RunError::from_plant(run.name(), error))?;
    match outcome.violations.first() {
        None => Ok(outcome),
        Some(violation) => Err(RunError::Violation { run: run.name(), violation: violation.clone() }),
    }
}

/// Simulates one planned run until `stop` is set.
pub(crate) fn simulate(run: &PlannedRun<'_>, stop: &AtomicBool) -> Result<RunOutcome, RunError> {
    execute(&SimulatedPlant, run, stop, &mut |_| {})
}

/// Creates a thread pool of the size in the options.
pub(crate) fn thread_pool(options: &Options) -> Result<rayon::ThreadPool, RunError> {
    let threads = options.threads.unwrap_or(0); // 0: as many as rayon sees CPUs
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| RunError::Threads(error.to_string()))
}

/// Calls `work` for every run, on the number of threads in the options.
///
/// Outcomes are in the order of `runs`; of several errors it returns the first in that order.
pub(crate) fn run_parallel<'a, T: Send>(
    runs: &[PlannedRun<'a>],
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
    work: impl Fn(&PlannedRun<'a>) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    // The first run may take a minute, so the start is reported at once.
    progress(Progress { done: 0, total: runs.len(), is_training: false });
    let run_one = |run| {
        if cancel.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = work(run);
        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        progress(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total: runs.len(), is_training: false });
        Some(outcome)
    };
    let outcomes: Vec<Option<Result<T, RunError>>> = match options.threads {
        // A sweep executes a hundred thousand runs one by one; a thread pool for each would cost
        // too much.
        Some(1) => runs.iter().map(run_one).collect(),
        // Runs differ in length by orders of magnitude, so each is a task of its own.
        _ => thread_pool(options)?.install(|| runs.par_iter().with_max_len(1).map(run_one).collect()),
    };
    let mut finished = Vec::with_capacity(runs.len());
    let mut missing = false;
    for outcome in outcomes {
        match outcome {
            Some(outcome) => finished.push(outcome?),
            None => missing = true,
        }
    }
    if missing { Err(RunError::Cancelled) } else { Ok(finished) }
}
