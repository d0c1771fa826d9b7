//! Reading of a whole scenario: all sections, and the checks across sections.

use super::document::{Origin, Source, Table, parse};
use super::overrides::{QUICK, apply, apply_quick};
use super::reader::{Item, MAX_ENTRIES, Reader};
use super::{
    PathSpec, Scenario, ScenarioError, StepSpec, Variant, controllers, graph, kinds, output, replicas, scheduling,
    threading, tier, workload,
};
use crate::numbers::rate;
use leeward_core::params::RawParam;
use leeward_core::registry::{Environment, Registry};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::LockModel;
use std::path::Path;

/// Maximum number of runs per scenario.
const MAX_RUNS: usize = 50_000;
/// Maximum number of requests per run.
const MAX_REQUESTS: f64 = 1e9;
/// Maximum number of windows of all runs together.
const MAX_WINDOWS: u64 = 5_000_000;
/// Maximum duration of a run with a shifting demand: recovery is measured in windows of 1 ms.
const MAX_SHIFTING_DURATION: Nanos = Nanos::from_secs(900);
/// Default window of the time series of a shifting demand (Breakwater §5.2).
const SHIFT_WINDOW: Nanos = Nanos::from_millis(20);

const KEYS: &[&str] = &[
    "id",
    "title",
    "source",
    "description",
    "server",
    "replicas",
    "tier",
    "service",
    "call",
    "train",
    "network",
    "workload",
    "kind",
    "run",
    "quick",
    "published",
    "controller",
    "plot",
    "claim",
];

pub(super) fn scenario(
    name: &str,
    text: &str,
    folder: &Path,
    overrides: &[String],
    quick: bool,
    registry: &Registry,
) -> Result<Scenario, ScenarioError> {
    let source = Source { file: name, overrides };
    let file = parse(&source, text)?;
    let mut root = file.clone();
    if quick {
        apply_quick(&mut root);
    }
    apply(&mut root, &source)?;
    let mut scenario = check(&root, &source, folder, registry)?;
    scenario.quick = quick;
    scenario.overrides = overrides.to_vec();
    if !quick {
        // A mistake in `[quick]` is reported now, not at the first quick run.
        let mut root = file;
        apply_quick(&mut root);
        check(&root, &Source { file: name, overrides: &[] }, folder, registry)?;
    }
    Ok(scenario)
}

/// Reads the overrides for judging the papers' claims: the paper's machine where the scenario's own
/// differs.
fn published(item: &Item<'_>) -> Result<Vec<String>, ScenarioError> {
    let table = item.table(&["set"])?;
    let set = table.require("set", "a list of overrides such as [\"server.threads.preset=utune\"]")?;
    let each = set.list(20)?.into_iter().map(|item| match item.text()?.split_once('=') {
        Some(_) => Ok(item.text()?.to_string()),
        None => Err(item.unexpected("key=value, as --set takes it")),
    });
    each.collect()
}

fn check(root: &Table, source: &Source<'_>, folder: &Path, registry: &Registry) -> Result<Scenario, ScenarioError> {
    let root = Reader::new(source, root, "", Origin::Line(1), KEYS)?;
    let run_item = root.require("run", "a section [run]")?;
    let mut run = workload::run(&run_item)?;
    if let Some(item) = root.find("quick") {
        item.table(&QUICK.map_keys())?;
    }
    let workload_item = root.require("workload", "a section [workload]")?;
    let server = workload::server(root.find("server"))?;
    let tiers = tier::tiers(root.find("tier"), server.cores, &workload::thread_costs(root.find("server"))?)?;
    let (network, rtts) = workload::network(root.find("network"))?;
    let defaults = graph::Defaults { cores: server.cores, costs: server.costs, rtt: network.rtt };
    let graph = graph::graph(root.find("service"), root.find("call"), &defaults)?;
    let kinds = kinds::kinds(root.find("kind"), folder)?;
    let others = workload::RequestSections { tiers: &tiers, graph: graph.as_deref(), kinds: &kinds };
    let workload = workload::workload(&workload_item, folder, run.duration, &others)?;
    if workload.demand.is_shifting() {
        run.window = run.window.or(Some(SHIFT_WINDOW));
    }
    let controllers =
        controllers::controllers(&root.require("controller", "at least one section [[controller]]")?, registry)?;
    let variants: Vec<Variant> = controllers.iter().map(|(variant, _)| variant.clone()).collect();
    let scenario = Scenario {
        id: id(&root.require("id", "a short name such as \"bw-overall\"")?)?,
        title: root.require("title", "one line for people")?.line()?.into(),
        source: root.prose_or_empty("source")?,
        description: root.prose_or_empty("description")?,
        server,
        tiers,
        graph,
        training: threading::training(root.find("train"))?,
        replicas: root.find("replicas").map(|item| replicas::replicas(&item)).transpose()?,
        network,
        transport: workload::transport(root.find("network"))?,
        rtts,
        workload,
        kinds,
        run,
        quick: false,
        plots: output::plots(root.find("plot"), &variants)?,
        claims: output::claims(root.find("claim"), &variants)?,
        controllers: variants,
        overrides: Vec::new(),
        published: root.find("published").map_or(Ok(Vec::new()), |item| published(&item))?,
    };
    check_slow(&scenario, root.find("server"))?;
    check_locks(&scenario, &controllers)?;
    check_shadow_modes(&scenario, &controllers)?;
    replicas::check(&scenario, root.find("replicas"), &controllers)?;
    threading::check(&scenario, &controllers)?;
    graph::check(&scenario, &controllers)?;
    kinds::check(&scenario, root.find("kind"))?;
    check_demands(&scenario, workload_item.open_table()?.find("demand"))?;
    check_size(&scenario, &run_item, &workload_item)?;
    check_params(&scenario, &controllers, registry)?;
    Ok(scenario)
}

/// Names of a list of pairs.
trait MapKeys {
    fn map_keys(&self) -> Vec<&'static str>;
}

impl MapKeys for [(&'static str, &'static str)] {
    fn map_keys(&self) -> Vec<&'static str> {
        self.iter().map(|(key, _)| *key).collect()
    }
}

fn id(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 60 || !text.chars().all(fine) {
        return Err(item.unexpected("an id of 1 to 60 ASCII letters, digits, - and _"));
    }
    Ok(text.into())
}

/// Rejects a slow period that changes nothing, or lies within a run that is measured when it has
/// settled: before and after it are two states.
fn check_slow(scenario: &Scenario, server: Option<Item<'_>>) -> Result<(), ScenarioError> {
    let (Some(_), Some(item)) = (scenario.server.slow, server.and_then(|item| item.open_table().ok()?.find("slow")))
    else {
        return Ok(());
    };
    let waits = |path: &PathSpec| path.steps.iter().any(|step| matches!(step, StepSpec::Wait(_)));
    if !scenario.workload.application.as_ref().is_some_and(|application| application.paths.iter().any(waits)) {
        return Err(item.error("makes waits longer, but no [[workload.path]] has a step such as \"wait 90%\""));
    }
    if scenario.run.settle.is_some() {
        return Err(item.error("is a shift: run.settle is for one state; accepted: `warmup` and `duration` in [run]"));
    }
    Ok(())
}

/// Rejects lock settings without an application with locks, and core allocation with such an
/// application.
fn check_locks(scenario: &Scenario, controllers: &[(Variant, Item<'_>)]) -> Result<(), ScenarioError> {
    let allocated = controllers.iter().find(|(variant, _)| scenario.server_for(variant).scheduling.is_some());
    if let (Some((variant, item)), Some(_)) = (allocated, &scenario.workload.application) {
        let problem =
            format!("`{}` has an allocator: locks and allocated cores are not simulated together", variant.label);
        return Err(item.error(problem));
    }
    let derived = controllers.iter().find(|(variant, _)| variant.derived_budget);
    let measured = scenario.workload.services.iter().any(|service| !service.is_simulated());
    if let (Some((variant, item)), false) = (derived, measured) {
        let problem = format!(
            "`{}` takes locks `unless-congested` without a budget, which follows from what is measured of a real service \
             only; accepted: such as \"unless-congested:134us\"",
            variant.label
        );
        return Err(item.error(problem));
    }
    let with_locks = controllers.iter().find(|(variant, _)| variant.locks != LockModel::default());
    match with_locks {
        Some((variant, item)) if scenario.workload.application.is_none() => {
            Err(item
                .error(format!("`{}` has `lock` or `acquire`, but no [[workload.path]] takes locks", variant.label)))
        }
        _ => Ok(()),
    }
}

/// Rejects shadow mode except for one server of cores whose controller rejects at the server.
fn check_shadow_modes(scenario: &Scenario, controllers: &[(Variant, Item<'_>)]) -> Result<(), ScenarioError> {
    let Some((variant, item)) = controllers.iter().find(|(variant, _)| variant.enforced_percent < 100) else {
        return Ok(());
    };
    let is_plain = scenario.replicas.is_none()
        && scenario.tiers.is_empty()
        && scenario.graph.is_none()
        && scenario.workload.application.is_none()
        && scenario.server_for(variant).scheduling.is_none();
    if is_plain {
        return Ok(());
    }
    Err(item.error(format!(
        "`{}` has `enforce`: shadow mode needs one server of cores, without replicas, an allocator, a tier, a graph or locks",
        variant.label
    )))
}

/// Rejects demands that are one rate of a service, such as a multiple and a number: their rows
/// would be one.
fn check_demands(scenario: &Scenario, list: Option<Item<'_>>) -> Result<(), ScenarioError> {
    let Some(items) = list.map(|item| item.list(MAX_ENTRIES)).transpose()? else { return Ok(()) };
    for service in &scenario.workload.services {
        let mut earlier: Vec<(f64, &Item<'_>)> = Vec::new();
        for (item, demand) in items.iter().zip(scenario.workload.demand.levels()) {
            let rate = rate(demand.rate(scenario.capacity_of(service)).0);
            if let Some((_, same)) = earlier.iter().find(|(other, _)| *other == rate) {
                return Err(item.repeated(same));
            }
            earlier.push((rate, item));
        }
    }
    Ok(())
}

fn check_size(scenario: &Scenario, run: &Item<'_>, workload: &Item<'_>) -> Result<(), ScenarioError> {
    let demands = scenario.workload.demand.levels();
    let points = if scenario.workload.demand.is_shifting() { 1 } else { demands.len() };
    let workloads = scenario.workload.instances().len();
    let clients = scenario.workload.clients.len();
    let arrivals = scenario.workload.arrivals.len();
    let lists = [scenario.workload.services.len(), workloads, clients, scenario.rtts.len(), points, arrivals];
    let runs = lists
        .iter()
        .fold(scenario.controllers.len() * scenario.run.seeds as usize, |runs, list| runs.saturating_mul(*list));
    if runs > MAX_RUNS {
        let problem = format!(
            "asks for {runs} runs (variants x services x p x r x clients x round trips x demands x seeds); accepted: up to {MAX_RUNS}"
        );
        return Err(workload.error(problem));
    }
    if scenario.workload.demand.is_shifting() && scenario.run.duration > MAX_SHIFTING_DURATION {
        return Err(run.error(format!("a shifting demand lasts up to {MAX_SHIFTING_DURATION} in all")));
    }
    let windows = scenario.run.window.map_or(0, |window| scenario.run.duration.0 / window.0);
    if windows.saturating_mul(runs as u64) > MAX_WINDOWS {
        return Err(run.error(format!(
            "asks for {windows} windows in each of {runs} runs; accepted: up to {MAX_WINDOWS} in all"
        )));
    }
    for service in &scenario.workload.services {
        let capacity = scenario.capacity_of(service);
        let fastest = demands.iter().map(|demand| demand.rate(capacity).0).fold(0.0, f64::max);
        let requests = Rate(fastest).events_in(scenario.run.longest_at(Rate(fastest)));
        if requests > MAX_REQUESTS {
            let problem = format!(
                "{fastest:.0} requests/s over {} is too much for one run; accepted: up to {MAX_REQUESTS:.0} requests",
                scenario.run.longest_at(Rate(fastest))
            );
            return Err(workload.error(problem));
        }
        let slowest = demands.iter().map(|demand| demand.rate(capacity).0).fold(f64::INFINITY, f64::min);
        let lasts = scenario.run.longest_at(Rate(slowest));
        // A run without requests would report a misleading p99 of 0.
        if !scenario.workload.demand.is_shifting() && Rate(slowest).events_in(lasts) < 1.0 {
            let problem =
                format!("{slowest:e} requests/s are less than one in {lasts}; accepted: at least one in a run");
            let demand = workload.open_table()?.find("demand");
            return Err(demand.map_or_else(|| workload.error(&problem), |item| item.error(&problem)));
        }
    }
    Ok(())
}

/// Builds every controller for each workload: parameters may be valid alone and contradict each
/// other together.
fn check_params(
    scenario: &Scenario,
    controllers: &[(Variant, Item<'_>)],
    registry: &Registry,
) -> Result<(), ScenarioError> {
    for (variant, item) in controllers {
        scheduling::check(&scenario.server_for(variant), variant, item)?;
        let algorithm = registry.find(&variant.controller).map_err(|error| item.error(error.to_string()))?;
        for service in &scenario.workload.services {
            for (rtt, clients) in scenario
                .rtts
                .iter()
                .flat_map(|rtt| scenario.workload.clients.iter().map(move |clients| (*rtt, clients)))
            {
                let slo = scenario.server_slo(scenario.slo_at(&service.service, rtt));
                let environment = Environment::new(scenario.server.cores, rtt, slo);
                let allocated = scenario.server_for(variant).scheduling.is_some();
                let environment = if allocated { environment.with_allocator() } else { environment };
                let pairs = variant.params_for(&service.text, *clients);
                let pairs: Vec<(&str, RawParam)> =
                    pairs.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
                let built = algorithm.params(&pairs).and_then(|params| {
                    algorithm.server(&params, &environment)?;
                    algorithm.client::<()>(&params, &environment).map(drop)
                });
                built.map_err(|error| {
                    item.error(format!("`{}` with {} and {clients} clients: {error}", variant.label, service.text))
                })?;
            }
        }
    }
    Ok(())
}
