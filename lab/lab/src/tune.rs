//! Search for the best parameters of a controller in a scenario.

mod retest;
mod sampling;

pub use retest::{RETEST_SEEDS, Retest};

use crate::error::RunError;
use crate::execute::{check_services, check_simulated, run_parallel, simulate};
use crate::numbers::round;
use crate::options::{Options, Progress};
use crate::plan::plan;
use crate::rows::point;
use crate::scenario::{Demand, DemandPlan, Scenario, ServiceSpec, Variant};
use leeward_core::params::RawParam;
use leeward_core::registry::{Environment, Registry};
use leeward_core::units::Nanos;
use leeward_outcome::results::PointRow;
use sampling::ParamSampler;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Id of the scenario.
    pub scenario: String,
    /// Label of the controller.
    pub label: String,
    /// The command that repeats the search.
    pub command: String,
    /// Results, one per service and number of clients.
    pub workloads: Vec<TunedWorkload>,
}

/// Result of the search for one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedWorkload {
    /// Text of the service.
    pub service: String,
    /// Number of clients.
    pub clients: u32,
    /// All candidates, in the order of the search.
    pub candidates: Vec<Candidate>,
    /// Index of the best of the search among `candidates`.
    pub best: usize,
    /// The best and the scenario's own set on other seeds; `None` if they are the same set.
    pub retest: Option<Retest>,
}

/// Index of the scenario's own set among the candidates.
pub const OWN: usize = 0;

impl TunedWorkload {
    /// Index of the recommended set: the best if the retest confirms it, else the scenario's own.
    pub fn recommended(&self) -> usize {
        if self.retest.as_ref().is_some_and(Retest::is_confirmed) { self.best } else { OWN }
    }
}

/// A set of parameters with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The tuning parameters.
    pub params: Vec<(String, RawParam)>,
    /// Mean ratio of goodput to capacity over the searched demands.
    pub goodput_ratio: f64,
    /// Mean 99th percentile over the searched demands, µs.
    pub p99_us: f64,
    /// Whether all runs had settled; others are never the best while one has.
    pub settled: bool,
}

impl Candidate {
    /// The set with the means over its rows.
    fn from_points<'a>(params: Params, points: impl Iterator<Item = &'a PointRow> + Clone) -> Candidate {
        let mean = |value: fn(&PointRow) -> f64| points.clone().map(value).sum::<f64>() / points.clone().count() as f64;
        let goodput_ratio = round(mean(|point| point.goodput_rps / point.capacity_rps), 6);
        let p99_us = round(mean(|point| point.p99_us), 3);
        let settled = points.clone().all(|point| point.settled != Some(false));
        Candidate { params, goodput_ratio, p99_us, settled }
    }
}

impl Tuning {
    /// `[[controller.tuned]]` sections for the scenario, of the workloads for which another set
    /// than its own is recommended.
    pub fn to_toml(&self) -> String {
        let section = |found: &TunedWorkload| {
            let params = found.candidates.get(found.recommended()).map_or(&[][..], |best| &best.params);
            let pairs: Vec<String> = params.iter().map(|(name, raw)| format!("{name} = {}", toml_value(raw))).collect();
            format!(
                "[[controller.tuned]]\nservice = {}\nclients = {}\nparams = {{ {} }}\nfound = {}\n",
                toml_value(&RawParam::Text(found.service.clone())),
                found.clients,
                pairs.join(", "),
                toml_value(&RawParam::Text(self.command.clone())),
            )
        };
        let changed = self.workloads.iter().filter(|found| found.recommended() != OWN);
        changed.map(section).collect::<Vec<_>>().join("\n")
    }
}

fn toml_value(raw: &RawParam) -> String {
    match raw {
        RawParam::Text(text) => toml::Value::String(text.clone()).to_string(),
        RawParam::Number(number) => toml::Value::Float(*number).to_string(),
        RawParam::Integer(number) => number.to_string(),
        RawParam::Switch(on) => on.to_string(),
    }
}

/// Default number of evaluated sets per workload.
pub const DRAWS: u32 = 60;

/// Searches the parameters of the controller `label` for each service and number of clients of
/// `scenario`, with `draws` sets over all durations and numbers that it has.
///
/// The first sets are the scenario's own and the one without its `tuned` sections, so that tuning
/// makes no controller worse. Most others are drawn at random; the last third is drawn around the
/// best one, nearer in each round. Every controller gets the same number of sets, so that the cost
/// does not depend on its parameters.
///
/// The best candidate has the highest mean of goodput over capacity at demands of capacity and
/// above (at all demands if there are none), of those whose runs had settled. Within 0.2 % of it,
/// the lowest 99th percentile decides.
///
/// The best of many sets is partly the luckiest one: it and the scenario's own are run again on
/// [`RETEST_SEEDS`] other seeds, and it is recommended if it is better at each of them.
///
/// # Errors
/// See [`RunError`].
pub fn tune(
    scenario: &Scenario,
    registry: &Registry,
    (label, draws): (&str, u32),
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Tuning, RunError> {
    check_simulated(options)?;
    check_services(scenario)?;
    let variant =
        scenario.controllers.iter().find(|variant| variant.label == label).ok_or_else(|| RunError::Label {
            label: label.chars().take(60).collect(),
            accepted: scenario.controllers.iter().map(|known| known.label.as_str()).collect::<Vec<_>>().join(", "),
        })?;
    let algorithm = registry.find(&variant.controller)?;
    let done = AtomicUsize::new(0);
    let mut workloads = Vec::new();
    for service in &scenario.workload.services {
        for clients in &scenario.workload.clients {
            let one = for_workload(scenario, variant, service, *clients);
            let untuned = variant.params.clone();
            let mut search = Search {
                scenario: one,
                untuned,
                registry,
                options,
                progress,
                cancel,
                done: &done,
                candidates: Vec::new(),
            };
            let slo = scenario.slo(&service.service);
            let best = search.run(ParamSampler::new(algorithm, scale_of(slo), options.seed), draws)?;
            let retest = search.retest(best)?;
            workloads.push(TunedWorkload {
                service: service.text.clone(),
                clients: *clients,
                candidates: search.candidates,
                best,
                retest,
            });
        }
    }
    if workloads.iter().all(|found| found.candidates.len() < 2) {
        return Err(RunError::Untunable(label.into()));
    }
    let command = command(scenario, label, draws, options);
    Ok(Tuning { scenario: scenario.id.clone(), label: label.into(), command, workloads })
}

/// Command that repeats the search.
fn command(scenario: &Scenario, label: &str, draws: u32, options: &Options) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._-+:/%=".contains(c);
    let word = |word: &str| if word.chars().all(plain) { word.into() } else { format!("'{word}'") };
    let mut parts = vec![format!("leeward tune {} --controller {}", scenario.id, word(label))];
    parts.extend((options.quick || scenario.quick).then(|| "--quick".into()));
    parts.extend((draws != DRAWS).then(|| format!("--draws {draws}")));
    parts.extend((options.seed != 1).then(|| format!("--seed {}", options.seed)));
    parts.extend(scenario.overrides.iter().map(|given| format!("--set {}", word(given))));
    parts.join(" ")
}

/// The scenario for one workload and one controller, at the searched demands.
fn for_workload(scenario: &Scenario, variant: &Variant, service: &ServiceSpec, clients: u32) -> Scenario {
    let mut one = scenario.clone();
    let mut variant = variant.clone();
    variant.params = variant.params_for(&service.text, clients);
    (variant.tuned, variant.pinned) = (Vec::new(), Vec::new());
    one.controllers = vec![variant];
    one.workload.services = vec![service.clone()];
    one.workload.clients = vec![clients];
    one.run.window = None;
    if let DemandPlan::Steady(points) = &mut one.workload.demand {
        let capacity = scenario.capacity_of(service);
        let overload: Vec<Demand> =
            points.iter().copied().filter(|demand| demand.rate(capacity).0 >= 0.999 * capacity.0).collect();
        if !overload.is_empty() {
            *points = overload;
        }
    }
    one
}

/// Objective for which the algorithms' listed durations are written.
const REFERENCE_SLO: Nanos = Nanos::from_micros(200);
/// Relative difference from the best goodput that counts as a tie.
pub const TIE: f64 = 0.002;
/// Rounds of refinement, and the share of the range to either side of the best set in the first;
/// each later one halves it.
const ROUNDS: u32 = 4;
const FIRST_REACH: f64 = 0.2;

fn scale_of(slo: Nanos) -> f64 {
    slo.as_secs_f64() / REFERENCE_SLO.as_secs_f64()
}

struct Search<'a> {
    scenario: Scenario,
    /// The parameters without those of the scenario's `tuned` sections.
    untuned: Params,
    registry: &'a Registry,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress) + Sync),
    cancel: &'a AtomicBool,
    done: &'a AtomicUsize,
    candidates: Vec<Candidate>,
}

type Params = Vec<(String, RawParam)>;

impl Search<'_> {
    /// Evaluates `count` sets, the scenario's own and the untuned one included; returns the index
    /// of the best.
    fn run(&mut self, mut draws: ParamSampler, count: u32) -> Result<usize, RunError> {
        let start = self.scenario.controllers.first().map(|variant| variant.params.clone()).unwrap_or_default();
        let mut known = vec![start.clone()];
        known.extend((self.untuned != start).then(|| self.untuned.clone()));
        let refined = count / 3;
        let random_count = count.saturating_sub(refined + known.len() as u32);
        self.evaluate(known)?;
        let random = self.draw(random_count, || draws.sample(&start));
        self.evaluate(random)?;
        let mut reach = FIRST_REACH;
        for round in 0..ROUNDS {
            let best = self.candidates[self.best()].params.clone();
            let near =
                self.draw(refined * (round + 1) / ROUNDS - refined * round / ROUNDS, || draws.near(&best, reach));
            self.evaluate(near)?;
            reach /= 2.0;
        }
        Ok(self.best())
    }

    /// Draws `count` sets that can be and have not been tried. Others are drawn again, up to a
    /// limit.
    fn draw(&self, count: u32, mut next: impl FnMut() -> Params) -> Vec<Params> {
        let mut sets: Vec<Params> = Vec::new();
        for _ in 0..20 * count {
            if sets.len() == count as usize {
                break;
            }
            let set = next();
            let is_known = self.candidates.iter().any(|tried| tried.params == set) || sets.contains(&set);
            if !is_known && self.is_possible(&set) {
                sets.push(set);
            }
        }
        sets
    }

    /// Runs the candidates.
    fn evaluate(&mut self, new: Vec<Params>) -> Result<(), RunError> {
        let points = self.run_sets(&new, self.options.seed, self.scenario.run.seeds)?;
        let evaluated =
            new.into_iter().zip(points).map(|(params, points)| Candidate::from_points(params, points.iter()));
        self.candidates.extend(evaluated);
        Ok(())
    }

    /// Runs the best set and the scenario's own on other seeds, if they differ.
    fn retest(&self, best: usize) -> Result<Option<Retest>, RunError> {
        if best == OWN {
            return Ok(None);
        }
        let sets = [best, OWN].map(|index| self.candidates[index].params.clone());
        let first_seed = self.options.seed.wrapping_add(retest::SEED_OFFSET);
        let points = self.run_sets(&sets, first_seed, RETEST_SEEDS)?;
        let mut measured = sets.into_iter().zip(points);
        Ok(measured.next().zip(measured.next()).map(|(best, own)| Retest::from_points(best, own)))
    }

    /// Runs the sets on `seeds` seeds, all in parallel; returns the rows of each, seed by seed at
    /// each demand.
    fn run_sets(&self, sets: &[Params], first_seed: u64, seeds: u32) -> Result<Vec<Vec<PointRow>>, RunError> {
        let Some(base) = self.scenario.controllers.first() else { return Ok(Vec::new()) };
        let mut scenario = self.scenario.clone();
        scenario.run.seeds = seeds;
        scenario.controllers = sets.iter().map(|params| Variant { params: params.clone(), ..base.clone() }).collect();
        let planned = plan(&scenario, self.registry, first_seed)?;
        let (before, done) = (self.done.load(Ordering::Relaxed), self.done);
        let counted = |progress: Progress| {
            done.fetch_add(1, Ordering::Relaxed);
            let (done, total) = (before + progress.done, before + progress.total);
            (self.progress)(Progress { done, total, ..progress });
        };
        let points = run_parallel(&planned, self.options, &counted, self.cancel, |run| {
            Ok(point(run, &simulate(run, self.cancel)?))
        })?;
        let each = (points.len() / sets.len().max(1)).max(1);
        Ok(points.chunks(each).map(<[PointRow]>::to_vec).collect())
    }

    /// Whether the parameters are accepted together; a contradictory candidate is skipped.
    fn is_possible(&self, params: &Params) -> bool {
        let Some(variant) = self.scenario.controllers.first() else { return false };
        let Some(service) = self.scenario.workload.services.first() else { return false };
        let slo = self.scenario.slo(&service.service);
        let environment = Environment::new(self.scenario.server.cores, self.scenario.network.rtt, slo);
        let pairs: Vec<(&str, RawParam)> = params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        self.registry.find(&variant.controller).is_ok_and(|algorithm| {
            let built = algorithm.params(&pairs).and_then(|params| algorithm.server(&params, &environment));
            built.is_ok()
        })
    }

    fn best(&self) -> usize {
        let any_settled = self.candidates.iter().any(|tried| tried.settled);
        let compared = || self.candidates.iter().enumerate().filter(|(_, tried)| tried.settled || !any_settled);
        let highest = compared().map(|(_, tried)| tried.goodput_ratio).fold(0.0, f64::max);
        let close = compared().filter(|(_, tried)| tried.goodput_ratio >= highest * (1.0 - TIE));
        close.min_by(|(_, a), (_, b)| a.p99_us.total_cmp(&b.p99_us)).map_or(0, |(index, _)| index)
    }
}

fn with_param(params: &Params, name: &str, value: &RawParam) -> Params {
    let mut params: Params = params.iter().filter(|(known, _)| known != name).cloned().collect();
    params.push((name.into(), value.clone()));
    // Sorted, so that equal sets are recognised.
    params.sort_by(|(a, _), (b, _)| a.cmp(b));
    params
}
