//! Scenarios on the real plant: it measures the machine, runs over real sockets, and predicts each
//! run with a simulator calibrated to the machine.
//!
//! A calibrated scenario has the cores, costs, round trip and stalls of this machine. So demands in
//! multiples of capacity, objectives and predictions follow as in the simulator.

use crate::assemble::{append_rows, empty_results, with_verdicts};
use crate::error::RunError;
use crate::execute::{execute, simulate};
use crate::numbers;
use crate::options::{Options, Progress};
use crate::plan::{PlannedRun, plan};
use crate::policy_curves;
use crate::rows::{Rows, point};
use crate::scenario::{Scenario, ServiceSpec, ThreadingSpec, Variant};
use leeward_core::registry::Registry;
use leeward_core::units::Nanos;
use leeward_outcome::results::{Machine, PointRow, Results, ShiftRow};
use leeward_plant::machine::STEPS;
pub use leeward_plant::measured::WINDOW;
use leeward_plant::{
    EndpointCosts, InProcessService, MeasuredPlant, Placement, RealError, RealTier, Snapshot, Transport,
};
use leeward_services::definition::Notice;
use leeward_services::synthetic;
use leeward_sim::config::{Arrivals, Costs, LockPolicy, NetworkModel, ServerModel, SocketCosts, Stalls};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::Tier;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Current stage, for a display. The clients' CPU reports it during runs, so handlers must be
/// quick.
#[derive(Clone, Debug)]
pub enum RealRunStage<'a> {
    /// A step of the calibration.
    Calibrating {
        /// Description of the step.
        step: &'a str,
    },
    /// The machine has been measured.
    Calibrated(&'a Machine),
    /// A run begins.
    RunStarted(&'a PlannedRun<'a>),
    /// A run is in progress.
    RunProgress(&'a PlannedRun<'a>, &'a Snapshot),
    /// A run has ended, with these rows.
    RunEnded(&'a PointRow, &'a [ShiftRow]),
}

/// Number of steps of the calibration.
pub const CALIBRATION_STEPS: usize = STEPS;

/// Runs a scenario on this machine, one run at a time.
///
/// The controllers alternate at each demand, so that changes of the machine affect all of them
/// alike.
///
/// # Errors
/// See [`RunError`].
pub fn run(
    scenario: &Scenario,
    registry: &Registry,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &dyn Fn(&RealRunStage<'_>),
    cancel: &AtomicBool,
) -> Result<Results, RunError> {
    let all = run_all(std::slice::from_ref(scenario), registry, options, progress, watch, cancel)?;
    Ok(all.into_iter().next().unwrap_or_default())
}

/// Runs several scenarios, one after another, like [`run`]. The machine is measured once per
/// service and number of clients for all of them. Returns one result per scenario.
///
/// # Errors
/// See [`RunError`].
pub fn run_all(
    scenarios: &[Scenario],
    registry: &Registry,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &dyn Fn(&RealRunStage<'_>),
    cancel: &AtomicBool,
) -> Result<Vec<Results>, RunError> {
    let mut runs = 0;
    let mut machines = Vec::new();
    for scenario in scenarios {
        check(scenario)?;
        runs += plan(scenario, registry, options.seed)?.len();
        let is_far = scenario.transport == Transport::Udp;
        let machine =
            |(service, clients): (&ServiceSpec, u32)| (scenario.server.cores, service.text.clone(), clients, is_far);
        machines.extend(calibration_points(scenario).map(machine));
    }
    machines.sort_unstable();
    machines.dedup();
    let total = runs + machines.len() * STEPS;
    let done = Cell::new(0);
    let advance = || {
        done.set(done.get() + 1);
        progress(Progress { done: done.get(), total, is_training: false });
    };
    let mut known = Vec::new();
    let mut ready: Vec<(String, InProcessService)> = Vec::new();
    let each = scenarios.iter().map(|scenario| {
        let mut results = empty_results(scenario, options);
        let mut ends_of: Vec<(&str, EndpointCosts)> = Vec::new();
        for (service, clients) in calibration_points(scenario) {
            let served = match ready.iter().find(|(text, _)| *text == service.text) {
                Some((_, served)) => InProcessService::clone(served),
                None => {
                    let served = prepare_service(service, &|step| watch(&RealRunStage::Calibrating { step }))?;
                    ready.push((service.text.clone(), served.clone()));
                    served
                }
            };
            if let Some(description) = &served.description {
                results.description = format!("{}\n{description}", results.description).trim().into();
            }
            let cores = scenario.server.cores;
            let choose = if served.is_lock_bound() { Placement::choose_shared } else { Placement::choose };
            let placement = choose(cores).map_err(calibration_error)?.with_transport(scenario.transport);
            let key = (scenario.server.cores, service.text.clone(), clients, scenario.transport == Transport::Udp);
            let before = known.iter().find(|(known, _)| *known == key).map(|(_, measured)| *measured);
            let measured = match before {
                Some(measured) => measured,
                None => {
                    let step = |step: &str| watch(&RealRunStage::Calibrating { step });
                    let measured =
                        leeward_plant::Machine::measure(&placement, &served, &service.service, clients, cancel, step)
                            .map_err(calibration_error)?;
                    known.push((key, measured));
                    (0..STEPS).for_each(|_| advance());
                    measured
                }
            };
            let mut ends = ends_of.iter().find(|(tier, _)| *tier == service.text).map(|(_, ends)| *ends);
            if ends.is_none()
                && let Some(spec) = scenario.tiers.iter().find(|spec| spec.name == service.text)
            {
                watch(&RealRunStage::Calibrating { step: "clients and leaves" });
                let costs = measure_endpoints(&spec.tier, &placement, cancel)?;
                results.description = format!("{}\n{}", results.description, describe_endpoints(&costs)).trim().into();
                ends_of.push((&service.text, costs));
                ends = Some(costs);
            }
            let calibrated = calibrate(scenario, service, clients, &placement, &measured, ends);
            let machine = machine_row(&calibrated, &calibrated.workload.services[0], clients, &placement);
            watch(&RealRunStage::Calibrated(&machine));
            results.machines.push(machine);
            let mut planned = plan(&calibrated, registry, options.seed)?;
            let step = |step: &str| {
                watch(&RealRunStage::Calibrating { step });
                progress(Progress { done: done.get(), total, is_training: true });
            };
            results.description +=
                &policy_curves::train_measured(&calibrated, &mut planned, (options.seed, &placement), &step, cancel)?;
            progress(Progress { done: done.get(), total, is_training: false });
            let mut rows_of: Vec<Option<Rows>> = planned.iter().map(|_| None).collect();
            for index in interleaved_order(planned.len(), calibrated.controllers.len(), calibrated.run.seeds as usize) {
                if cancel.load(Ordering::Relaxed) {
                    return Err(RunError::Cancelled);
                }
                let audience = options.observers.as_ref();
                let plant =
                    MeasuredPlant { placement: &placement, service: &served, machine: &measured, observers: audience };
                let rows = run_one(&planned[index], &plant, watch, cancel)?;
                watch(&RealRunStage::RunEnded(&rows.point, &rows.shifts));
                rows_of[index] = Some(rows);
                advance();
            }
            rows_of.into_iter().flatten().for_each(|rows| append_rows(&mut results, rows));
        }
        Ok(with_verdicts(results, scenario))
    });
    each.collect()
}

/// Prepares a service, which may include indexing a corpus.
fn prepare_service(service: &ServiceSpec, step: &dyn Fn(&str)) -> Result<InProcessService, RunError> {
    let Some(requests) = &service.requests else { return Ok(synthetic::in_process()) };
    let report = |notice: Notice<'_>| match notice {
        Notice::Step(text) | Notice::Note(text) => step(text),
    };
    requests.prepare_in_process(&report).map_err(|error| calibration_error(error.into()))
}

/// Combinations to calibrate: each service with each number of clients.
fn calibration_points(scenario: &Scenario) -> impl Iterator<Item = (&ServiceSpec, u32)> {
    let workload = &scenario.workload;
    workload.services.iter().flat_map(|service| workload.clients.iter().map(move |clients| (service, *clients)))
}

fn calibration_error(error: RealError) -> RunError {
    match error {
        RealError::Cancelled => RunError::Cancelled,
        source => RunError::Real { run: "measuring this machine".into(), source },
    }
}

/// Rejects a scenario that the real server and loopback don't support.
///
/// Costs, round trip and stalls are measured instead, and the number of cores follows from the
/// CPUs.
fn check(scenario: &Scenario) -> Result<(), RunError> {
    let usual = ServerModel::default();
    let refuse = |when, key, why| if when { Err(RunError::RealUnsupported { key, reason: why }) } else { Ok(()) };
    let order = "the real server takes tasks first";
    refuse(scenario.server.order != usual.order, "server.order", order)?;
    let head = "the real server decides when it has parsed the request";
    refuse(scenario.server.aqm != usual.aqm, "server.aqm", head)?;
    let turns = "the real server's control loop runs between two tasks";
    refuse(scenario.server.control != usual.control, "server.control", turns)?;
    let batch = "how much the real server reads at once can't be set";
    refuse(scenario.server.batch != usual.batch, "server.batch", batch)?;
    let locks = "the real synthetic service takes no locks; services that do have scenarios of their own";
    refuse(scenario.workload.application.is_some(), "workload.path", locks)?;
    let closed = "the load generator's clients issue requests whatever the server does";
    refuse(scenario.workload.arrivals.contains(&Arrivals::Closed), "workload.arrivals = \"closed\"", closed)?;
    let clients = "the load generator's clients send a request as soon as they may, and wait for every response";
    let client = &scenario.workload.client;
    refuse(client.pacing > Nanos::ZERO, "workload.pacing", clients)?;
    refuse(client.timeout.is_some(), "workload.timeout", clients)?;
    let how = "the real locks wait, or reject requests that would wait too long";
    let ways = scenario.controllers.iter().map(|variant| variant.locks.acquire);
    let unlike = |way| {
        matches!(way, LockPolicy::Try | LockPolicy::Timed { .. } | LockPolicy::UnlessCongested { recheck: false, .. })
    };
    refuse(ways.into_iter().any(unlike), "controller.acquire", how)?;
    let knows = "the service time of a real request is unknown until it has been served";
    let is_oracle = |variant: &Variant| variant.controller == leeward_sim::oracle::ALGORITHM.name;
    refuse(scenario.controllers.iter().any(is_oracle), "controller.name = \"oracle\"", knows)?;
    let rehearses = scenario.controllers.iter().any(|variant| variant.enforced_percent < 100);
    refuse(
        rehearses,
        "controller.enforce",
        "a real server does not report requests' ages to its controller; a gate has shadow mode (docs/middleware.md)",
    )?;
    let alike = "the real load generator's requests are all alike";
    refuse(!scenario.kinds.is_empty(), "kind", alike)?;
    let one = "this machine has one server";
    refuse(scenario.replicas.is_some(), "replicas", one)?;
    let knows = "a real tier's policy does not know the demand";
    let is_told = |variant: &Variant| variant.threading.as_ref().is_some_and(ThreadingSpec::uses_demand);
    refuse(scenario.controllers.iter().any(is_told), "controller.threading = \"oracle\"", knows)?;
    let jitter = "the jitter of the real network can't be set";
    let cores = "the real plant keeps its cores; `leeward serve --allocator` parks them";
    let managed = scenario.controllers.iter().any(|variant| scenario.server_for(variant).scheduling.is_some());
    refuse(managed, "server.allocator", cores)?;
    refuse(scenario.rtts.len() > 1, "network.rtt", "this machine's round trip is measured")?;
    refuse(scenario.network.jitter > Nanos::ZERO, "network.jitter", jitter)?;
    check_tiers(scenario)
}

/// Rejects a tier that can't be served here, before measurements and training.
fn check_tiers(scenario: &Scenario) -> Result<(), RunError> {
    if scenario.tiers.is_empty() {
        return Ok(());
    }
    let placement = Placement::choose(scenario.server.cores).map_err(calibration_error)?;
    for (service, _) in calibration_points(scenario) {
        for variant in &scenario.controllers {
            let Some(tier) = scenario.tier_for(service, variant) else { continue };
            let failed = |source| RunError::Real { run: format!("{} of {}", variant.label, service.text), source };
            RealTier::new(&tier, &placement, Nanos::ZERO).map_err(failed)?;
        }
    }
    Ok(())
}

/// Reorders the runs of a plan, whose outermost loop is the controllers and innermost the seeds:
/// seeds outermost, controllers innermost.
fn interleaved_order(runs: usize, controllers: usize, seeds: usize) -> impl Iterator<Item = usize> {
    let per_controller = runs / controllers.max(1);
    let demands = per_controller / seeds.max(1);
    (0..seeds).flat_map(move |seed| {
        (0..demands).flat_map(move |demand| {
            (0..controllers).map(move |controller| controller * per_controller + demand * seeds + seed)
        })
    })
}

/// Measures the costs of both ends of a tier on this machine.
fn measure_endpoints(tier: &Tier, placement: &Placement, cancel: &AtomicBool) -> Result<EndpointCosts, RunError> {
    let messages = tier.costs.receive + tier.costs.send;
    EndpointCosts::measure(placement, tier.leaves.service.mean(), messages, cancel).map_err(calibration_error)
}

fn describe_endpoints(ends: &EndpointCosts) -> String {
    let EndpointCosts { client, client_p99, leaf, host_call } = ends;
    format!(
        "Clients sleep until they are due and until they are answered: their round trip takes {client} (99th percentile {client_p99}). The leaves are one \
         thread on the clients' CPU: a call to an idle one takes {leaf} besides its time, and a call takes {host_call} of that CPU."
    )
}

/// The scenario on this machine, with one service and one number of clients.
fn calibrate(
    scenario: &Scenario,
    service: &ServiceSpec,
    clients: u32,
    placement: &Placement,
    measured: &leeward_plant::Machine,
    ends: Option<EndpointCosts>,
) -> Scenario {
    let mut calibrated = scenario.clone();
    let known = measured.unloaded.map_or_else(|| service.service.clone(), |alone| ServiceTime::Constant(alone.mean));
    calibrated.workload.services = vec![ServiceSpec { service: known, ..service.clone() }];
    calibrated.workload.clients = vec![clients];
    (calibrated.server, calibrated.network) = to_sim_models(measured, placement);
    // The prediction is for this machine's tier.
    calibrated.tiers.iter_mut().for_each(|spec| spec.tier.cpus = placement.server.len() as u32);
    if let Some(EndpointCosts { client, leaf, host_call, .. }) = ends {
        calibrated.network.rtt = client;
        for spec in calibrated.tiers.iter_mut().filter(|spec| spec.name == service.text) {
            (spec.tier.leaves.rtt, spec.tier.leaves.host_call) = (leaf, host_call);
        }
    }
    calibrated
}

/// Converts a measured machine to the simulator's models.
pub fn to_sim_models(measured: &leeward_plant::Machine, placement: &Placement) -> (ServerModel, NetworkModel) {
    let leeward_plant::machine::MessageCosts { receive, send, spawn } = measured.costs;
    let sockets = measured.sockets.map(|sockets| SocketCosts {
        receive: sockets.receive,
        send: sockets.send,
        batched_write: sockets.batched_write,
    });
    let server = ServerModel {
        cores: placement.server.len() as u32,
        costs: Costs { receive, send, spawn, ..Costs::default() },
        sockets,
        stalls: measured
            .stalls
            .map(|stalls| Stalls { mean_interval: stalls.mean_interval, mean_length: stalls.mean_length }),
        ..ServerModel::default()
    };
    (server, NetworkModel { rtt: measured.rtt, jitter: Nanos::ZERO })
}

fn machine_row(calibrated: &Scenario, service: &ServiceSpec, clients: u32, placement: &Placement) -> Machine {
    let server = &calibrated.server;
    Machine {
        service: service.text.clone(),
        clients,
        cores: server.cores,
        clients_apart: !placement.shared,
        capacity_rps: numbers::rate(server.capacity(service.service.mean()).0),
        rtt_us: numbers::micros(calibrated.network.rtt),
        cost_us: numbers::micros(server.costs.per_request()),
        stalled: numbers::round(server.stalls.map_or(0.0, |stalls| 1.0 - stalls.available()), 6),
    }
}

/// Runs one run and returns its rows, with a prediction if the simulator supports the service.
fn run_one(
    run: &PlannedRun<'_>,
    plant: &MeasuredPlant<'_>,
    watch: &dyn Fn(&RealRunStage<'_>),
    cancel: &AtomicBool,
) -> Result<Rows, RunError> {
    watch(&RealRunStage::RunStarted(run));
    let outcome = execute(plant, run, cancel, &mut |snapshot| watch(&RealRunStage::RunProgress(run, snapshot)))?;
    let mut rows = Rows::from_outcome(run, &outcome);
    rows.warning = outcome.lateness.map(|late| {
        let (half, most, slo) = (late.p50, late.p99, run.config.slo);
        format!(
            "{}: the load generator did not keep its schedule: half of the requests were sent more than {half} late, 1 in 100 more \
             than {most} late, with an objective of {slo}",
            run.name()
        )
    });
    let (failed, offered) = (outcome.totals.failed, outcome.totals.offered);
    let failures = (failed > 0).then(|| format!("{}: the service failed {failed} of {offered} requests", run.name()));
    rows.warning = match (rows.warning, failures) {
        (Some(late), Some(failures)) => Some(format!("{late}; {failures}")),
        (late, failures) => late.or(failures).or_else(|| oversubscription(run, plant)),
    };
    // The simulator does not support a tier on the runtime's cores, without a threading setup.
    let has_setup = run.config.tier.as_ref().is_none_or(|tier| tier.threading.setup().is_some());
    if !plant.service.is_measured() && has_setup {
        let predicted = point(run, &simulate(run, cancel)?);
        rows.point.predicted_p50_us = Some(predicted.p50_us);
        rows.point.predicted_goodput_rps = Some(predicted.goodput_rps);
        rows.point.predicted_p99_us = Some(predicted.p99_us);
    }
    Ok(rows)
}

/// Warning about more polling threads than CPUs: their measurements say little about machines with
/// enough CPUs.
fn oversubscription(run: &PlannedRun<'_>, plant: &MeasuredPlant<'_>) -> Option<String> {
    let setup = run.config.tier.as_ref()?.threading.setup()?;
    let (pollers, cpus) = (setup.pollers(), plant.placement.server.len());
    (pollers as usize > cpus)
        .then(|| format!("{}: {pollers} threads poll on {cpus} of this machine's CPUs", run.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_interleaved_by_controller() {
        // Two controllers, three demands, two seeds; controllers are outermost in a plan.
        let order: Vec<usize> = interleaved_order(12, 2, 2).collect();
        assert_eq!(order, [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
    }
}
