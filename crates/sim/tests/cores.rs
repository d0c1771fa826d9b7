//! Servers whose cores come and go: their books in random scenarios, and what must hold of any allocator.

mod common;

use common::{checker, scenario};
use leeward_control::allocation::registry::POLICIES;
use leeward_control::registry::Registry;
use leeward_control::units::Nanos;
use leeward_sim::config::{Application, Balancing, Costs, Scheduling, ServerModel};
use leeward_sim::scheduling::NAMES;
use leeward_sim::{RunOutcome, SimConfig, service::Service, simulate};

const SCENARIOS: u64 = 80;

/// The swarm's scenarios, each with an allocator and a policy of balancing.
#[test]
fn random_scenarios_keep_their_books() {
    let registry = Registry::builtin();
    let balancings: Vec<&str> = NAMES.split(", ").collect();
    for seed in 1..=SCENARIOS {
        let mut scenario = scenario::draw(seed, &registry);
        let policy = POLICIES[seed as usize % POLICIES.len()].name;
        let balancing = balancings[seed as usize / POLICIES.len() % balancings.len()];
        // Locks and allocated cores are not simulated together.
        scenario.config.application = Application::default();
        let server = &mut scenario.config.server;
        server.scheduling = Some(Scheduling {
            balancing: Balancing::parse(balancing).unwrap(),
            min_cores: 1 + seed as u32 % server.cores,
            allocation_delay: Nanos([0, 5_000, 50_000][seed as usize % 3]),
            check: Nanos([0, 100, 1_000][seed as usize / 3 % 3]),
            ..Scheduling::new(policy)
        });
        let report = checker::check(&scenario);
        let report = report.unwrap_or_else(|violation| {
            panic!("{violation}\nseed {seed}, {policy}, {balancing}: {}", scenario.words);
        });
        let cores = report.cores.unwrap();
        let config = &scenario.config;
        let least = f64::from(config.server.scheduling.as_ref().unwrap().min_cores);
        let most = f64::from(config.server.cores);
        assert!(cores.mean_cores >= least - 1e-9 && cores.mean_cores <= most + 1e-9, "seed {seed}: {cores:?}");
    }
}

/// 8 cores at 1 us of service under `allocator`, at `load`.
fn run(allocator: &str, balancing: &str, load: f64) -> RunOutcome {
    let server = ServerModel {
        cores: 8,
        costs: Costs { steal: Nanos(100), ..Costs::FREE },
        batch: 1,
        scheduling: Some(Scheduling { balancing: Balancing::parse(balancing).unwrap(), ..Scheduling::new(allocator) }),
        ..ServerModel::default()
    };
    let mut config = SimConfig::testbed(Service::Exponential(Nanos(1_000)), load);
    let capacity = server.capacity(Nanos(1_000));
    config.workload.demand[0].rate.0 = capacity.0 * load;
    let config = SimConfig {
        server,
        warmup: Nanos::from_micros(500),
        duration: Nanos::from_micros(4_500),
        audit: true,
        ..config
    };
    let none = Registry::builtin().find("none").unwrap().clone();
    simulate(&config, &none, &none.params(&[]).unwrap()).unwrap()
}

#[test]
fn every_pair_serves_half_the_load_and_gives_cores_back() {
    for policy in POLICIES {
        for balancing in NAMES.split(", ") {
            let name = format!("{} {balancing}", policy.name);
            let report = run(policy.name, balancing, 0.5);
            assert_eq!(report.violations, Vec::<String>::new(), "{name}");
            let served = report.counts.completed as f64 / report.counts.offered as f64;
            // Random placing without balancing leaves cores of which some have too much and nobody takes it over.
            assert!(served > 0.95, "{name}: {served}");
            let cores = report.cores.unwrap();
            let busy = report.cpu_utilization * 8.0;
            assert!(cores.mean_cores >= busy - 1e-6, "{name}: {cores:?} do the work of {busy}");
            let given_back = if policy.name == "static" { 0.0..1e-9 } else { 0.01..0.51 };
            assert!(given_back.contains(&cores.best_effort_share), "{name}: {cores:?}");
        }
    }
}

/// With an oracle and cores at once a server holds as many as it has requests, up to all.
#[test]
fn ideal_holds_what_works() {
    let report = run("ideal", "oracle", 0.5);
    let cores = report.cores.unwrap();
    let busy = report.cpu_utilization * 8.0;
    assert!((cores.mean_cores - busy).abs() < 0.02, "{cores:?} for {busy}");
}

/// Nothing to do: all but the one that must stay are another application's.
#[test]
fn an_idle_server_keeps_one_core() {
    let report = run("delay", "steal-random", 1e-6);
    let cores = report.cores.unwrap();
    assert!((cores.mean_cores - 1.0).abs() < 0.01 && (cores.best_effort_share - 0.875).abs() < 0.01, "{cores:?}");
}

#[test]
fn impossible_schedulings_are_refused() {
    let none = Registry::builtin().find("none").unwrap().clone();
    let params = none.params(&[]).unwrap();
    for scheduling in [
        Scheduling::new("shenango"),
        Scheduling { allocation_delay: Nanos::from_secs(2), ..Scheduling::new("delay") },
        Scheduling { check: Nanos::from_secs(2), ..Scheduling::new("delay") },
    ] {
        let mut config = SimConfig::testbed(Service::Constant(Nanos(1_000)), 0.5);
        config.server.scheduling = Some(scheduling);
        assert!(simulate(&config, &none, &params).is_err());
    }
}
