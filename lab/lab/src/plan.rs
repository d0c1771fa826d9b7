//! The plan of a scenario: all its runs, in the order of the results: variant, service,
//! application, clients, round trip, demand, seed.

use crate::error::RunError;
use crate::numbers::{rate, round};
use crate::scenario::{ApplicationInstance, DemandPlan, Scenario, ServiceSpec, Variant};
use leeward_core::params::RawParam;
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::units::{Nanos, Rate, Time};
use leeward_outcome::results::{RunKey, WorkloadKey};
use leeward_sim::SimConfig;
use leeward_sim::config::{
    Application, Arrivals, LockModel, NetworkModel, Observation, Segment, StoppingRule, Workload,
};

/// Resolution of a shift's recovery time.
const FINE_WINDOW: Nanos = Nanos::from_millis(1);

/// A run of the plan.
#[derive(Clone, Debug)]
pub struct PlannedRun<'a> {
    /// The controller and its label.
    pub variant: &'a Variant,
    /// Algorithm of the controller.
    pub algorithm: &'a Algorithm,
    /// Parameters for this workload.
    pub params: Vec<(String, RawParam)>,
    /// The service.
    pub service: &'a ServiceSpec,
    /// The application, with its `p` and `r`.
    pub application: ApplicationInstance,
    /// Number of clients.
    pub clients: u32,
    /// Capacity of the server without control.
    pub capacity: Rate,
    /// Configuration of the simulator.
    pub config: SimConfig,
}

impl PlannedRun<'_> {
    /// Name of the run in messages.
    pub fn name(&self) -> String {
        let arrivals = if self.config.tier.is_some() { format!(", {}", self.arrivals()) } else { String::new() };
        let first = self.config.workload.demand.first().map_or(0.0, |segment| segment.rate.0);
        let named = |name, value: Option<f64>| value.map_or(String::new(), |value| format!(", {name}={value}"));
        format!(
            "{} at {first:.0}/s, {} clients, {}{arrivals}{}{}, seed {}",
            self.variant.label,
            self.clients,
            self.service.text,
            named("p", self.application.p),
            named("r", self.application.r),
            self.config.seed
        )
    }

    /// Name of the arrival process.
    pub(crate) fn arrivals(&self) -> &'static str {
        match self.config.workload.arrivals {
            Arrivals::Poisson => "poisson",
            Arrivals::Constant => "constant",
            Arrivals::Bursts { .. } => "bursts",
            Arrivals::Closed => "closed",
        }
    }

    /// Key of this run's rows.
    pub(crate) fn run_key(&self) -> RunKey {
        RunKey::new(&self.variant.controller, &self.variant.label, self.config.seed)
    }

    /// Key of the run's workload.
    pub(crate) fn workload_key(&self) -> WorkloadKey {
        let demand = self.demand().0;
        WorkloadKey {
            service: self.service.text.clone(),
            demand_rps: rate(demand),
            demand_ratio: round(demand / self.capacity.0, 6),
            clients: self.clients,
            p: self.application.p,
            r: self.application.r,
        }
    }

    /// Demand at `time`.
    pub fn demand_at(&self, time: Time) -> Rate {
        let segments = &self.config.workload.demand;
        let started = segments.iter().rev().find(|segment| segment.from.0 <= time.0);
        started.map_or(Rate(0.0), |segment| segment.rate)
    }

    /// Mean demand over the measured interval.
    pub fn demand(&self) -> Rate {
        let (from, to) = (self.config.warmup, self.config.duration);
        let segments = &self.config.workload.demand;
        let ends = segments.iter().skip(1).map(|segment| segment.from).chain([to]);
        let requests = segments
            .iter()
            .zip(ends)
            .map(|(segment, end)| segment.rate.events_in(end.min(to).saturating_sub(segment.from.max(from))));
        let requests: f64 = requests.sum();
        match segments.as_slice() {
            [only] => only.rate, // exact
            _ => Rate(requests / to.saturating_sub(from).as_secs_f64()),
        }
    }
}

/// Plans all runs of a scenario. A run's seed depends only on `base_seed` and the run's number
/// within its point, so that all controllers meet the same arrivals.
///
/// # Errors
/// A controller that is not in `registry`.
pub fn plan<'a>(
    scenario: &'a Scenario,
    registry: &'a Registry,
    base_seed: u64,
) -> Result<Vec<PlannedRun<'a>>, RunError> {
    let mut runs = Vec::new();
    let instances = scenario.workload.instances();
    for variant in &scenario.controllers {
        let algorithm = registry.find(&variant.controller)?;
        for service in &scenario.workload.services {
            let clients = &scenario.workload.clients;
            for (application, clients) in instances.iter().flat_map(|one| clients.iter().map(move |count| (one, count)))
            {
                let params = variant.params_for(&service.text, *clients);
                let demands = demands(scenario, service);
                let arrivals = &scenario.workload.arrivals;
                let points = scenario.rtts.iter().flat_map(|rtt| demands.iter().map(move |demand| (*rtt, demand)));
                let points =
                    points.flat_map(|(rtt, demand)| arrivals.iter().map(move |process| (rtt, demand, *process)));
                for (rtt, demand, process) in points {
                    for index in 0..scenario.run.seeds {
                        let seed = base_seed.wrapping_add(index.into());
                        let config = config(scenario, service, *clients, (demand, process), seed);
                        runs.push(PlannedRun {
                            variant,
                            algorithm,
                            params: params.clone(),
                            service,
                            application: application.clone(),
                            clients: *clients,
                            capacity: scenario.capacity_of(service),
                            config: SimConfig {
                                tier: scenario.tier_for(service, variant),
                                graph: scenario.graph_for(variant),
                                application: application.application.clone(),
                                locks: variant.locks,
                                enforced: variant.enforced_percent,
                                server: scenario.server_for(variant),
                                network: NetworkModel { rtt, ..scenario.network },
                                slo: scenario.slo_at(&service.service, rtt),
                                ..config
                            },
                        });
                    }
                }
            }
        }
    }
    Ok(runs)
}

/// Windows of a run before the first decision on whether it has settled.
const MIN_WINDOWS: u32 = 100;
/// Requests per client before the first decision: client halves adapt to the responses of their own
/// client, SEDA's after a hundred.
const REQUESTS_PER_CLIENT: f64 = 500.0;
/// Requests before the first decision that suffice in any case, if each client has issued
/// `LEAST_REQUESTS_PER_CLIENT`.
const REQUESTS: f64 = 1.5e6;
const LEAST_REQUESTS_PER_CLIENT: f64 = 200.0;
/// Share of these requests whose responses or rejections must have come: at twice the capacity, a
/// client gets a response to half of its requests.
const ANSWERED: f64 = 0.5;
/// Objectives before the first decision: control loops act on delays of about an objective.
const OBJECTIVES: u64 = 500;
/// Periods of pauses and quotas in a measurement, and spans of bursts before the first decision.
const PERIODS: u64 = 5;
/// Most windows of a run: each is kept.
const MAX_WINDOWS: u64 = 100_000;
/// Windows of a run with fixed times.
const FIXED_WINDOWS: u64 = 200;

/// The rule by which a run settles and ends.
fn stopping(
    scenario: &Scenario,
    service: &ServiceSpec,
    clients: u32,
    (demand, arrivals): (&[Segment], Arrivals),
) -> StoppingRule {
    let run = &scenario.run;
    // The start and the end of a slow period are shifts, as those of the demand are.
    let ends = scenario.server.slow.map(|slow| [slow.start, slow.end]);
    let slow = ends.into_iter().flatten().find(|at| *at > run.warmup);
    let pauses = scenario.server.pauses.map_or(Nanos::ZERO, |pauses| pauses.interval);
    let quota = scenario.server.quota.map_or(Nanos::ZERO, |quota| quota.period);
    let least_measured = pauses.max(quota) * PERIODS;
    let burst_span = match arrivals {
        Arrivals::Bursts { peak_permille: 1_001.., mean_length } => mean_length,
        _ => Nanos::ZERO,
    };
    let fixed = |end: Nanos| {
        let until = slow.map_or(end, |shift| shift.min(end));
        StoppingRule {
            observation: Observation::FixedTimes { measured_from: run.warmup, until },
            window: (until / FIXED_WINDOWS).max(Nanos(1_000)),
            min_windows: MIN_WINDOWS,
            min_answers: 0,
            settle_within: run.warmup,
            measure_within: run.duration,
            precision: run.precision,
            min_responses: run.min_requests,
            least_measured,
            burst_span,
        }
    };
    match (demand, run.settle) {
        ([only], Some(settle)) => {
            let clients = f64::from(clients);
            let requests = (REQUESTS_PER_CLIENT * clients).min(REQUESTS.max(LEAST_REQUESTS_PER_CLIENT * clients));
            let objectives = scenario.slo(&service.service) * OBJECTIVES;
            let least = Nanos::from_secs_f64(requests / only.rate.0.max(1e-9)).max(objectives);
            let least = least.max(burst_span * PERIODS).min(settle / 2);
            let window = (least / u64::from(MIN_WINDOWS)).max(run.longest_at(only.rate) / MAX_WINDOWS);
            StoppingRule {
                observation: Observation::Adaptive,
                window: window.max(Nanos(1_000)),
                // At least one, however seldom requests come.
                min_answers: (only.rate.events_in(least) * ANSWERED).max(1.0) as u32,
                measure_within: settle.max(run.min_span(only.rate)),
                least_measured: least_measured.min(settle),
                settle_within: settle,
                ..fixed(run.duration)
            }
        }
        ([only], None) => fixed(run.duration_at(only.rate)),
        ([_, second, ..], _) => fixed(second.from),
        ([], _) => fixed(run.duration),
    }
}

/// Demand segments of each run.
fn demands(scenario: &Scenario, service: &ServiceSpec) -> Vec<Vec<Segment>> {
    let capacity = scenario.capacity_of(service);
    match &scenario.workload.demand {
        DemandPlan::Steady(points) => {
            points.iter().map(|demand| vec![Segment { from: Nanos::ZERO, rate: demand.rate(capacity) }]).collect()
        }
        DemandPlan::Shifting(shifts) => {
            vec![shifts.iter().map(|(from, demand)| Segment { from: *from, rate: demand.rate(capacity) }).collect()]
        }
    }
}

fn config(
    scenario: &Scenario,
    service: &ServiceSpec,
    clients: u32,
    (demand, arrivals): (&[Segment], Arrivals),
    seed: u64,
) -> SimConfig {
    SimConfig {
        server: scenario.server.clone(),
        network: scenario.network,
        workload: Workload {
            clients,
            arrivals,
            shares: scenario.workload.shares,
            demand: demand.to_vec(),
            service: service.service.clone(),
        },
        kinds: scenario.kinds.clone(),
        application: Application::default(),
        locks: LockModel::default(),
        clients: scenario.workload.client,
        replicas: scenario.replicas,
        tier: None,
        graph: None,
        enforced: 100,
        slo: scenario.slo(&service.service),
        stopping: Some(stopping(scenario, service, clients, (demand, arrivals))),
        warmup: scenario.run.warmup,
        duration: match demand {
            [only] => scenario.run.duration_at(only.rate),
            _ => scenario.run.duration,
        },
        window: scenario.run.window,
        fine_window: (demand.len() > 1).then_some(FINE_WINDOW),
        seed,
        audit: false,
    }
}
