//! All runs of a scenario on a pool of threads. Results come back in the order of the plan, so that the same scenario
//! and seed give the same bytes on any number of threads.

use crate::claims::judge;
use crate::measure;
use crate::plan::{PlannedRun, plan};
use crate::real;
use crate::results::Results;
use crate::scenario::Scenario;
use crate::shifts::shifts;
use crate::store::SCHEMA;
use leeward_control::params::Raw;
use leeward_control::registry::Registry;
use leeward_sim::{SimError, SimReport, simulate};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How to run a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The base seed: run `i` of each point uses `seed + i`.
    pub seed: u64,
    /// Threads; `None` for one per CPU.
    pub threads: Option<usize>,
    /// Noted in the results; the scenario itself was shortened when it was read.
    pub quick: bool,
    /// `sim` or `real`.
    pub plant: String,
    /// Noted in the results; applied when the scenario was read.
    pub overrides: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, threads: None, quick: false, plant: "sim".into(), overrides: Vec::new() }
    }
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs finished.
    pub done: usize,
    /// Runs in all, as far as known.
    pub total: usize,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// This plant is not known.
    #[error("unknown plant `{0}`; accepted: sim, real")]
    Plant(String),
    /// A search runs the scenario hundreds of times.
    #[error("parameters are searched in the simulator only; run the scenario with what it finds on the real plant")]
    OnlySimulated,
    /// A real run failed.
    #[error("{run}: {source}")]
    Real {
        /// Which.
        run: String,
        /// Why.
        source: leeward_plant::RealError,
    },
    /// The scenario asks for something that this machine's server and network don't have.
    #[error("{key}: {why}; leave it out, or run it in the simulator")]
    NotReal {
        /// Key of the scenario that was asked for.
        key: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// The scenario asks for a service that the simulator doesn't have.
    #[error("`{0}` is measured, not simulated: run it with --plant real")]
    NotSimulated(String),
    /// A label that the scenario doesn't have.
    #[error("unknown controller label `{label}`; accepted: {accepted}")]
    Label {
        /// Label that was asked for.
        label: String,
        /// Labels that there are.
        accepted: String,
    },
    /// Nothing to search: the controller has no parameter with values worth trying.
    #[error("controller `{0}` has no tuning parameters")]
    Untunable(String),
    /// The controller is not in the registry the run was given.
    #[error(transparent)]
    Registry(#[from] leeward_control::registry::RegistryError),
    /// A run failed.
    #[error("{run}: {source}")]
    Sim {
        /// Which.
        run: String,
        /// Why.
        source: SimError,
    },
    /// The simulator's books don't balance: a defect of it or of a controller. Nothing it says can be trusted.
    #[error("{run}: the books do not balance, please report this: {violation}")]
    Violation {
        /// Which.
        run: String,
        /// The first contradiction found.
        violation: String,
    },
    /// The pool of threads could not be made.
    #[error("threads: {0}")]
    Threads(String),
}

impl RunError {
    /// Whether something was asked for that can't be done, so that asking for something else helps; if not, something
    /// failed on the way.
    pub fn is_input(&self) -> bool {
        match self {
            RunError::Cancelled | RunError::Threads(_) | RunError::Violation { .. } => false,
            RunError::Real { source, .. } => source.is_input(),
            // A simulation knows no failure but an impossible configuration.
            _ => true,
        }
    }
}

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

/// Results without rows.
pub(crate) fn blank(scenario: &Scenario, options: &Options) -> Results {
    Results {
        schema: SCHEMA,
        scenario: scenario.id.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        description: scenario.description.trim().into(),
        plant: options.plant.clone(),
        seed: options.seed,
        quick: options.quick || scenario.quick,
        overrides: if options.overrides.is_empty() { scenario.overrides.clone() } else { options.overrides.clone() },
        plots: scenario.plots.clone(),
        ..Results::default()
    }
}

/// Refuses what only `run` can do elsewhere than in the simulator.
pub(crate) fn check_simulated(options: &Options) -> Result<(), RunError> {
    match options.plant.as_str() {
        "sim" => Ok(()),
        "real" => Err(RunError::OnlySimulated),
        _ => Err(unknown_plant(options)),
    }
}

/// Refuses what can't be simulated.
pub(crate) fn check_services(scenario: &Scenario) -> Result<(), RunError> {
    let refuse = |text: &str| Err(RunError::NotSimulated(text.into()));
    if let Some(service) = scenario.workload.services.iter().find(|service| !service.is_simulated()) {
        return refuse(&service.text);
    }
    if scenario.controllers.iter().any(|variant| variant.derived_budget) {
        return refuse("acquire = unless-congested, without a budget,");
    }
    Ok(())
}

fn unknown_plant(options: &Options) -> RunError {
    RunError::Plant(options.plant.chars().take(40).collect())
}

/// Simulates one planned run.
pub(crate) fn simulate_one(run: &PlannedRun<'_>) -> Result<SimReport, RunError> {
    let pairs: Vec<(&str, Raw)> = run.params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
    let report = match run.algorithm.params(&pairs) {
        Ok(params) => simulate(&run.config, run.algorithm, &params),
        Err(error) => Err(SimError::Params(error)),
    };
    let report = report.map_err(|source| RunError::Sim { run: run.name(), source })?;
    match report.violations.first() {
        None => Ok(report),
        Some(violation) => Err(RunError::Violation { run: run.name(), violation: violation.clone() }),
    }
}

/// Does `work` for every run on the options' number of threads. Outcomes are in the order of `runs`; of several errors
/// the first in that order is returned.
pub(crate) fn in_parallel<'a, T: Send>(
    runs: &[PlannedRun<'a>],
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
    work: impl Fn(&PlannedRun<'a>) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let threads = options.threads.unwrap_or(0); // 0: as many as rayon sees CPUs
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| RunError::Threads(error.to_string()))?;
    let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let one = |run| {
        if cancel.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = work(run);
        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        progress(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total: runs.len() });
        Some(outcome)
    };
    // Runs differ in length by orders of magnitude, so each is a task of its own.
    let outcomes: Vec<Option<Result<T, RunError>>> =
        pool.install(|| runs.par_iter().with_max_len(1).map(one).collect());
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
