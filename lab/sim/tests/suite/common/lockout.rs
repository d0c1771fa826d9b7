//! Lock-out: a server serves less than it could, and does not recover. Random scenarios of servers
//! with core allocation, each drawn from one number, and the check of their outcomes.

use leeward_allocation::registry::{self, POLICIES};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Balancing, Costs, NetworkModel, Scheduling, Segment, ServerModel, Workload};
use leeward_sim::{RunOutcome, SimConfig, service_time::ServiceTime, simulate};
use leeward_workload::rng::{Purpose, Rng};

/// Share of the possible goodput below which a run counts as locked out, if it lasts longer than
/// [`FOR_ROUND_TRIPS`] after the load has become steady.
const SHARE: f64 = 0.5;
const FOR_ROUND_TRIPS: u64 = 100;
/// Round trips per window of the time series.
const WINDOW: u64 = 10;
/// Round trips of each load step before the last, and of the last.
const STEP: u64 = 100;
const LAST: u64 = 260;

/// A scenario without its policies.
#[derive(Clone, Debug)]
pub(crate) struct RandomScenario {
    pub(crate) seed: u64,
    pub(crate) cores: u32,
    pub(crate) rtt: Nanos,
    pub(crate) target: Nanos,
    pub(crate) loads: Vec<f64>,
    pub(crate) clients: u32,
    pub(crate) service: ServiceTime,
    pub(crate) balancing: &'static str,
}

/// Draws the scenario of `seed`.
pub(crate) fn draw(seed: u64) -> RandomScenario {
    let mut rng = Rng::new(seed, Purpose::Clients);
    let mut one_of = |list: &[u64]| list[rng.below(list.len() as u64) as usize];
    let cores = one_of(&[2, 4, 8, 16, 32]) as u32;
    let rtt = Nanos::from_micros(one_of(&[5, 10, 20, 30, 45, 60]));
    let target = Nanos::from_micros(one_of(&[5, 10, 20, 40]));
    let steps = one_of(&[2, 3]);
    let loads = (0..steps).map(|_| one_of(&[1, 5, 10, 20, 40, 60, 80, 90, 100, 120]) as f64 / 100.0).collect();
    let mean = Nanos(1_000);
    RandomScenario {
        seed,
        cores,
        rtt,
        target,
        loads,
        clients: one_of(&[30, 100, 300]) as u32,
        service: match one_of(&[0, 1, 2]) {
            0 => ServiceTime::Bimodal(mean),
            1 => ServiceTime::Exponential(mean),
            _ => ServiceTime::Constant(mean),
        },
        balancing: ["steal-in-order", "steal-random", "steal-sibling", "oracle"][one_of(&[0, 1, 2, 3]) as usize],
    }
}

/// The policies of core allocation.
pub(crate) fn allocators() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}

/// Runs `drawn` under `admission` and `allocator`. An admission controller is a name, of which the
/// first word counts, and whether it knows the allocator: `on`, `off`, or empty without the choice.
pub(crate) fn run(drawn: &RandomScenario, admission: (&str, &str), allocator: &str) -> RunOutcome {
    run_with(drawn, admission, allocator, &[])
}

/// Runs `drawn` with parameters of the allocator.
pub(crate) fn run_with(
    drawn: &RandomScenario,
    admission: (&str, &str),
    allocator: &str,
    parameters: &[(&str, RawParam)],
) -> RunOutcome {
    let mean = Nanos(1_000);
    let server = ServerModel {
        cores: drawn.cores,
        costs: Costs { steal: Nanos(100), ..Costs::FREE },
        batch: 1,
        scheduling: Some(Scheduling {
            balancing: Balancing::parse(drawn.balancing).unwrap(),
            params: registry::find(allocator).unwrap().params(parameters).unwrap(),
            ..Scheduling::new(allocator)
        }),
        ..ServerModel::default()
    };
    let capacity = server.capacity(mean).0;
    let segment =
        |(step, load): (usize, &f64)| Segment { from: drawn.rtt * (STEP * step as u64), rate: Rate(capacity * load) };
    let testbed = SimConfig::testbed(drawn.service.clone(), 1.0);
    let config = SimConfig {
        server,
        network: NetworkModel { rtt: drawn.rtt, ..NetworkModel::default() },
        slo: (mean + drawn.rtt) * 10,
        workload: Workload {
            clients: drawn.clients,
            demand: drawn.loads.iter().enumerate().map(segment).collect(),
            ..testbed.workload
        },
        warmup: Nanos::ZERO,
        duration: drawn.rtt * (STEP * (drawn.loads.len() as u64 - 1) + LAST),
        window: Some(drawn.rtt * WINDOW),
        seed: drawn.seed,
        ..testbed
    };
    let (name, aware) = admission;
    let name = name.split(' ').next().unwrap();
    let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
    let mut pairs = Vec::new();
    // Both begin with a pool for all cores: the test is about a pool that is lost, not one that
    // starts slowly.
    let pool = f64::from(drawn.cores) * (1.0 + drawn.rtt.0 as f64 / mean.0 as f64);
    if !aware.is_empty() {
        pairs.push(("target", RawParam::Text(format!("{}ns", drawn.target.0))));
        pairs.push(("initial_pool", RawParam::Integer(pool as i64)));
        pairs.push(("beta", RawParam::Text("8%".into())));
        pairs.push(("allocator_aware", RawParam::Text(aware.into())));
    }
    simulate(&config, &algorithm, &algorithm.params(&pairs).unwrap()).unwrap()
}

/// Longest time, in round trips, with goodput below half of the possible after the last load step.
/// Possible is the load, or the capacity if that is less.
pub(crate) fn longest_outage(drawn: &RandomScenario, report: &RunOutcome) -> u64 {
    let last = drawn.loads.last().copied().unwrap_or(0.0).min(1.0);
    let from = drawn.rtt * (STEP * (drawn.loads.len() as u64 - 1));
    let possible = last * f64::from(drawn.cores) * (drawn.rtt * WINDOW).0 as f64 / 1_000.0;
    let (mut longest, mut running) = (0, 0);
    for window in report.windows.iter().filter(|window| window.clients.start.0 >= from.0) {
        running = if (window.clients.counts.good as f64) < SHARE * possible { running + WINDOW } else { 0 };
        longest = longest.max(running);
    }
    longest
}

/// Whether `report` is a lock-out.
pub(crate) fn is_locked_out(drawn: &RandomScenario, report: &RunOutcome) -> bool {
    longest_outage(drawn, report) > FOR_ROUND_TRIPS
}
