//! The search for the parameters under which a controller serves a scenario best.

mod sampling;

use crate::error::RunError;
use crate::execute::{check_services, check_simulated, run_parallel, simulate};
use crate::numbers::round;
use crate::options::{Options, Progress};
use crate::plan::plan;
use crate::rows::point;
use crate::scenario::{Demand, DemandPlan, Scenario, ServiceSpec, Variant};
use leeward_core::params::{ParamKind, ParamSpec, RawParam};
use leeward_core::registry::{Algorithm, Environment, Registry};
use leeward_core::units::{Nanos, parse_duration, parse_number};
use leeward_outcome::results::PointRow;
use sampling::ParamSampler;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Findings of a search, one entry per service and number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The scenario's id.
    pub scenario: String,
    /// The controller's label.
    pub label: String,
    /// The command that repeats the search.
    pub command: String,
    /// Findings, one per service and number of clients.
    pub workloads: Vec<TunedWorkload>,
}

/// The search for one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedWorkload {
    /// The service, as written.
    pub service: String,
    /// Clients.
    pub clients: u32,
    /// Everything tried, in order.
    pub candidates: Vec<Candidate>,
    /// Index of the best among `candidates`.
    pub best: usize,
}

/// A set of parameters and how it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The tuning parameters.
    pub params: Vec<(String, RawParam)>,
    /// Mean of goodput over capacity at the demands searched.
    pub goodput_ratio: f64,
    /// Mean of the 99th percentiles there, µs.
    pub p99_us: f64,
}

impl Tuning {
    /// `[[controller.tuned]]` sections to paste into the scenario.
    pub fn to_toml(&self) -> String {
        let section = |found: &TunedWorkload| {
            let params = found.candidates.get(found.best).map_or(&[][..], |best| &best.params);
            let pairs: Vec<String> = params.iter().map(|(name, raw)| format!("{name} = {}", toml_value(raw))).collect();
            format!(
                "[[controller.tuned]]\nservice = {}\nclients = {}\nparams = {{ {} }}\nfound = {}\n",
                toml_value(&RawParam::Text(found.service.clone())),
                found.clients,
                pairs.join(", "),
                toml_value(&RawParam::Text(self.command.clone())),
            )
        };
        self.workloads.iter().map(section).collect::<Vec<_>>().join("\n")
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

/// Searches the parameters of the controller labelled `label` for each service and number of clients of `scenario`.
///
/// Coordinate descent: one parameter after the other takes the best of the values its algorithm thinks worth trying
/// (durations scaled to the objective), until a round changes nothing; then each is tried half-way to its neighbours.
/// The best has the highest mean of goodput over capacity at demands of capacity and above (at all demands if there are
/// none); within 0.2 % of it, the lowest 99th percentile.
///
/// # Errors
/// See [`RunError`].
pub fn tune(
    scenario: &Scenario,
    registry: &Registry,
    label: &str,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Tuning, RunError> {
    search(scenario, registry, (label, None), options, progress, cancel)
}

/// Likewise, by `draws` sets of parameters that are drawn at random over all knobs, those without a list of values among them: as many for
/// every controller, whatever it has to tune. The first is the scenario's own, so that no controller is worse off for being tuned.
///
/// # Errors
/// See [`RunError`].
pub fn random_search(
    scenario: &Scenario,
    registry: &Registry,
    (label, draws): (&str, u32),
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Tuning, RunError> {
    search(scenario, registry, (label, Some(draws)), options, progress, cancel)
}

fn search(
    scenario: &Scenario,
    registry: &Registry,
    (label, draws): (&str, Option<u32>),
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
            let mut search =
                Search { scenario: one, registry, options, progress, cancel, done: &done, candidates: Vec::new() };
            let slo = scenario.slo(&service.service);
            let best = match draws {
                None => search.run(&knobs(algorithm, slo))?,
                Some(count) => {
                    search.random_search(ParamSampler::new(algorithm, scale_of(slo), options.seed), count)?
                }
            };
            workloads.push(TunedWorkload {
                service: service.text.clone(),
                clients: *clients,
                candidates: search.candidates,
                best,
            });
        }
    }
    if workloads.iter().all(|found| found.candidates.len() < 2) {
        return Err(RunError::Untunable(label.into()));
    }
    let command = command(scenario, label, draws, options);
    Ok(Tuning { scenario: scenario.id.clone(), label: label.into(), command, workloads })
}

/// Command that found the parameters, so that a reader can find them again.
fn command(scenario: &Scenario, label: &str, draws: Option<u32>, options: &Options) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._-+:/%=".contains(c);
    let word = |word: &str| if word.chars().all(plain) { word.into() } else { format!("'{word}'") };
    let mut words = vec![format!("leeward tune {} --controller {}", scenario.id, word(label))];
    words.extend((options.quick || scenario.quick).then(|| "--quick".into()));
    words.extend(draws.map(|draws| format!("--draws {draws}")));
    words.extend((options.seed != 1).then(|| format!("--seed {}", options.seed)));
    words.extend(scenario.overrides.iter().map(|given| format!("--set {}", word(given))));
    words.join(" ")
}

/// The scenario for one workload and one controller, at the demands that count.
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

/// A parameter and the values to try, ascending.
struct Knob {
    name: &'static str,
    values: Vec<RawParam>,
}

/// The objective for which the durations of the algorithms' lists are written.
const REFERENCE_SLO: Nanos = Nanos::from_micros(200);
/// Goodputs this close to the best count as equal.
const TIE: f64 = 0.002;
/// Rounds of coordinate descent at most.
const ROUNDS: usize = 3;

fn scale_of(slo: Nanos) -> f64 {
    slo.as_secs_f64() / REFERENCE_SLO.as_secs_f64()
}

fn knobs(algorithm: &Algorithm, slo: Nanos) -> Vec<Knob> {
    let scale = scale_of(slo);
    let value = |spec: &ParamSpec, text: &str| match (spec.kind, parse_duration(text)) {
        (ParamKind::Duration { min, max }, Ok(span)) => RawParam::Text(span.scale(scale).clamp(min, max).to_string()),
        _ => RawParam::Text(text.into()),
    };
    let knob = |spec: &ParamSpec| {
        let mut values: Vec<RawParam> = spec.tuning_values.iter().map(|text| value(spec, text)).collect();
        values.dedup();
        Knob { name: spec.name, values }
    };
    algorithm.params.iter().filter(|spec| !spec.tuning_values.is_empty()).map(knob).collect()
}

struct Search<'a> {
    scenario: Scenario,
    registry: &'a Registry,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress) + Sync),
    cancel: &'a AtomicBool,
    done: &'a AtomicUsize,
    candidates: Vec<Candidate>,
}

type Params = Vec<(String, RawParam)>;

impl Search<'_> {
    /// The index of the best among `tried`.
    fn run(&mut self, knobs: &[Knob]) -> Result<usize, RunError> {
        let start = self.scenario.controllers.first().map(|variant| variant.params.clone()).unwrap_or_default();
        self.evaluate(vec![start])?;
        let mut best = self.best();
        for _ in 0..ROUNDS {
            let before = best;
            for knob in knobs {
                let from = self.candidates[best].params.clone();
                self.evaluate(knob.values.iter().map(|value| with_param(&from, knob.name, value)).collect())?;
                best = self.best();
            }
            if best == before {
                break;
            }
        }
        for knob in knobs {
            let from = self.candidates[best].params.clone();
            self.evaluate(midpoints(knob, &from).iter().map(|value| with_param(&from, knob.name, value)).collect())?;
            best = self.best();
        }
        Ok(best)
    }

    /// The same of the scenario's own parameters and of sets that are drawn, `count` in all.
    fn random_search(&mut self, mut draws: ParamSampler, count: u32) -> Result<usize, RunError> {
        let start = self.scenario.controllers.first().map(|variant| variant.params.clone()).unwrap_or_default();
        let mut sets = vec![start.clone()];
        // Sets that contradict themselves are drawn again, within reason.
        let mut left = if draws.is_empty() { 0 } else { 20 * count };
        while sets.len() < count as usize && left > 0 {
            left -= 1;
            let next = draws.sample(&start);
            if self.is_possible(&next) && !sets.contains(&next) {
                sets.push(next);
            }
        }
        self.evaluate(sets)?;
        Ok(self.best())
    }

    /// Runs those candidates that have not been tried, all at once.
    fn evaluate(&mut self, candidates: Vec<Params>) -> Result<(), RunError> {
        let mut new: Vec<Params> = Vec::new();
        for candidate in candidates {
            let known = self.candidates.iter().any(|tried| tried.params == candidate) || new.contains(&candidate);
            if !known && self.is_possible(&candidate) {
                new.push(candidate);
            }
        }
        let Some(base) = self.scenario.controllers.first().cloned() else { return Ok(()) };
        let mut scenario = self.scenario.clone();
        scenario.controllers = new.iter().map(|params| Variant { params: params.clone(), ..base.clone() }).collect();
        let planned = plan(&scenario, self.registry, self.options.seed)?;
        let (before, done) = (self.done.load(Ordering::Relaxed), self.done);
        let counted = |progress: Progress| {
            done.fetch_add(1, Ordering::Relaxed);
            (self.progress)(Progress { done: before + progress.done, total: before + progress.total });
        };
        let points = run_parallel(&planned, self.options, &counted, self.cancel, |run| {
            Ok(point(run, &simulate(run, self.cancel)?))
        })?;
        let each = points.len() / new.len().max(1);
        for (params, points) in new.into_iter().zip(points.chunks(each.max(1))) {
            let mean = |value: fn(&PointRow) -> f64| points.iter().map(value).sum::<f64>() / points.len() as f64;
            let goodput_ratio = round(mean(|point| point.goodput_rps / point.capacity_rps), 6);
            self.candidates.push(Candidate { params, goodput_ratio, p99_us: round(mean(|point| point.p99_us), 3) });
        }
        Ok(())
    }

    /// Parameters may contradict one another; such a candidate is passed over.
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
        let highest = self.candidates.iter().map(|tried| tried.goodput_ratio).fold(0.0, f64::max);
        let close =
            self.candidates.iter().enumerate().filter(|(_, tried)| tried.goodput_ratio >= highest * (1.0 - TIE));
        close.min_by(|(_, a), (_, b)| a.p99_us.total_cmp(&b.p99_us)).map_or(0, |(index, _)| index)
    }
}

fn with_param(params: &Params, name: &str, value: &RawParam) -> Params {
    let mut params: Params = params.iter().filter(|(known, _)| known != name).cloned().collect();
    params.push((name.into(), value.clone()));
    // One order for all, so that a set of parameters is recognised however it was reached.
    params.sort_by(|(a, _), (b, _)| a.cmp(b));
    params
}

/// Half-way (geometrically) from the current value of a knob to its neighbours in the list.
fn midpoints(knob: &Knob, params: &Params) -> Vec<RawParam> {
    let Some((_, current)) = params.iter().find(|(name, _)| name == knob.name) else { return Vec::new() };
    let Some(at) = knob.values.iter().position(|value| value == current) else { return Vec::new() };
    let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| knob.values.get(at));
    neighbours.filter_map(|neighbour| midpoint(current, neighbour)).collect()
}

fn midpoint(a: &RawParam, b: &RawParam) -> Option<RawParam> {
    let (RawParam::Text(a), RawParam::Text(b)) = (a, b) else { return None };
    if let (Ok(a), Ok(b)) = (parse_duration(a), parse_duration(b)) {
        let nanos = (a.0 as f64 * b.0 as f64).sqrt();
        return Some(RawParam::Text(Nanos(nanos as u64 / 100 * 100).to_string()));
    }
    // Rounded to three digits: nothing is known more exactly.
    let number = (parse_number(a).ok()? * parse_number(b).ok()?).sqrt();
    let scale = 10f64.powf(2.0 - number.log10().floor());
    let number = (number * scale).round() / scale;
    number.is_finite().then(|| RawParam::Text(round(number, 9).to_string()))
}
