//! Core allocation: accounting in random scenarios, and invariants of any allocator.

use crate::common::{checker, scenario};
use leeward_allocation::registry::{self, POLICIES};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Time};
use leeward_sim::config::{
    Application, Aqm, Balancing, Costs, InitialCores, RevokePolicy, Scheduling, ServerModel, StealAmount,
};
use leeward_sim::scheduling::NAMES;
use leeward_sim::{RunOutcome, SimConfig, SimError, service_time::ServiceTime, simulate};

const SCENARIOS: u64 = 80;

/// The swarm's scenarios, each with an allocator and a balancing policy.
#[test]
fn random_scenarios_pass_the_conservation_check() {
    let registry = leeward_controllers::builtin();
    let balancings: Vec<&str> = NAMES.split(", ").collect();
    for seed in 1..=SCENARIOS {
        let mut scenario = scenario::draw(seed, &registry);
        let policy = POLICIES[seed as usize % POLICIES.len()].name;
        let balancing = balancings[seed as usize / POLICIES.len() % balancings.len()];
        // Locks and core allocation are not simulated together.
        scenario.config.application = Application::default();
        let server = &mut scenario.config.server;
        server.aqm = [Aqm::Head, Aqm::Arrival][seed as usize / 5 % 2];
        server.scheduling = Some(Scheduling {
            balancing: Balancing::parse(balancing).unwrap(),
            min_cores: 1 + seed as u32 % server.cores,
            allocation_delay: Nanos([0, 5_000, 50_000][seed as usize % 3]),
            check_cost: Nanos([0, 100, 1_000][seed as usize / 3 % 3]),
            revoke: [RevokePolicy::Any, RevokePolicy::Idle][seed as usize / 2 % 2],
            steal: [StealAmount::One, StealAmount::Half][seed as usize / 4 % 2],
            start: [InitialCores::Min, InitialCores::All][seed as usize / 8 % 2],
            ..Scheduling::new(policy)
        });
        let report = checker::check(&scenario);
        let report = report.unwrap_or_else(|violation| {
            panic!("{violation}\nseed {seed}, {policy}, {balancing}: {}", scenario.description);
        });
        let cores = report.cores.unwrap();
        let config = &scenario.config;
        let least = f64::from(config.server.scheduling.as_ref().unwrap().min_cores);
        let most = f64::from(config.server.cores);
        assert!(cores.mean_cores >= least - 1e-9 && cores.mean_cores <= most + 1e-9, "seed {seed}: {cores:?}");
    }
}

/// 8 cores at 1 us of service time under `allocator`, at `load`.
fn run(allocator: &str, balancing: &str, load: f64) -> RunOutcome {
    let balancing = Balancing::parse(balancing).unwrap();
    run_with(Scheduling { balancing, ..Scheduling::new(allocator) }, Aqm::Head, "none", load).unwrap()
}

/// 8 cores at 1 us of service time, with all parameters.
fn run_with(scheduling: Scheduling, aqm: Aqm, controller: &str, load: f64) -> Result<RunOutcome, SimError> {
    let server = ServerModel {
        cores: 8,
        costs: Costs { steal: Nanos(100), ..Costs::FREE },
        batch: 1,
        scheduling: Some(scheduling),
        aqm,
        ..ServerModel::default()
    };
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos(1_000)), load);
    let capacity = server.capacity(Nanos(1_000));
    config.workload.demand[0].rate.0 = capacity.0 * load;
    let config = SimConfig {
        server,
        warmup: Nanos::from_micros(500),
        duration: Nanos::from_micros(4_500),
        audit: true,
        ..config
    };
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    simulate(&config, &algorithm, &algorithm.params(&[]).unwrap())
}

/// A core that is granted, finds nothing and parks, all at one instant, would be granted endlessly.
#[test]
fn a_stuck_run_is_reported_with_its_time_and_policy() {
    let policy = registry::find("per-request").unwrap();
    let params = policy.params(&[("search", RawParam::Text("0ns".into()))]).unwrap();
    let scheduling = Scheduling { params, allocation_delay: Nanos::ZERO, ..Scheduling::new("per-request") };
    let refused = run_with(scheduling, Aqm::Head, "none", 0.5).unwrap_err();
    let SimError::Stuck { at, .. } = refused else { panic!("{refused}") };
    let message = refused.to_string();
    let instant = Nanos(at.0).to_string();
    assert!(at > Time::ZERO && message.contains(&instant) && message.contains("allocator `per-request`"), "{message}");
}

/// The poster's simulator has other rules; with each of them the accounting holds and the load is
/// served.
#[test]
fn each_rule_of_the_posters_simulator_passes_the_conservation_check() {
    let ours = |allocator: &str| Scheduling::new(allocator);
    for allocator in ["delay", "delay-range", "buffer", "utilization"] {
        let rules = [
            Scheduling { revoke: RevokePolicy::Idle, ..ours(allocator) },
            Scheduling { steal: StealAmount::Half, ..ours(allocator) },
            Scheduling { start: InitialCores::All, ..ours(allocator) },
            Scheduling {
                revoke: RevokePolicy::Idle,
                steal: StealAmount::Half,
                start: InitialCores::All,
                ..ours(allocator)
            },
        ];
        for rule in rules {
            for (aqm, controller) in
                [(Aqm::Head, "none"), (Aqm::Arrival, "none"), (Aqm::Head, "breakwater"), (Aqm::Arrival, "breakwater")]
            {
                let report = run_with(rule.clone(), aqm, controller, 0.5).unwrap();
                assert_eq!(report.violations, Vec::<String>::new(), "{rule:?} {aqm:?} {controller}");
                let served = report.counts.completed as f64 / report.counts.offered as f64;
                assert!(served > 0.95, "{rule:?} {aqm:?} {controller}: {served}");
            }
        }
    }
}

#[test]
fn a_server_may_begin_with_all_its_cores() {
    // No request arrives and no core is revoked, so the initial cores stay.
    let policy = registry::find("delay").unwrap();
    let params = policy.params(&[("search", RawParam::Text("1s".into()))]).unwrap();
    let held = |start| {
        let scheduling = Scheduling { params: params.clone(), start, ..Scheduling::new("delay") };
        run_with(scheduling, Aqm::Head, "none", 1e-6).unwrap().cores.unwrap().mean_cores
    };
    assert_eq!((held(InitialCores::Min), held(InitialCores::All)), (1.0, 8.0));
}

/// `utilization` revokes a core whenever the cores are not busy enough; with `idle` it never
/// revokes a busy one.
#[test]
fn busy_cores_are_not_revoked_under_the_idle_policy() {
    let held = |revoke| {
        let scheduling = Scheduling { revoke, ..Scheduling::new("delay-range") };
        let report = run_with(scheduling, Aqm::Head, "none", 0.6).unwrap();
        (report.cores.unwrap().mean_cores, report.latency.p99)
    };
    let (any, idle) = (held(RevokePolicy::Any), held(RevokePolicy::Idle));
    assert!(idle.0 > any.0 && idle.1 < any.1, "{any:?} {idle:?}");
}

/// A request rejected on arrival is never received: under overload its rejection costs less and
/// leaves earlier.
#[test]
fn rejecting_on_arrival_saves_the_cost_of_receiving() {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 3.0);
    config = SimConfig { warmup: Nanos::from_millis(5), duration: Nanos::from_millis(25), audit: true, ..config };
    let codel = leeward_controllers::builtin().find("codel").unwrap().clone();
    let served = |aqm| {
        let mut config = config.clone();
        config.server.aqm = aqm;
        let report = simulate(&config, &codel, &codel.params(&[]).unwrap()).unwrap();
        assert_eq!(report.violations, Vec::<String>::new(), "{aqm:?}");
        assert!(report.counts.dropped > 0, "{aqm:?}");
        (report.counts.completed, report.reject_delay.mean_ns)
    };
    let (arrival, head) = (served(Aqm::Arrival), served(Aqm::Head));
    assert!(arrival.0 > head.0 && arrival.1 < head.1, "{arrival:?} {head:?}");
}

#[test]
fn every_allocator_and_balancing_serves_half_load_and_releases_cores() {
    for policy in POLICIES {
        for balancing in NAMES.split(", ") {
            let name = format!("{} {balancing}", policy.name);
            let report = run(policy.name, balancing, 0.5);
            assert_eq!(report.violations, Vec::<String>::new(), "{name}");
            let served = report.counts.completed as f64 / report.counts.offered as f64;
            // Random dispatch without balancing overloads some cores, whose work no other core
            // takes.
            assert!(served > 0.95, "{name}: {served}");
            let cores = report.cores.unwrap();
            let busy = report.cpu_utilization * 8.0;
            assert!(cores.mean_cores >= busy - 1e-6, "{name}: {cores:?} do the work of {busy}");
            let given_back = if policy.name == "static" { 0.0..1e-9 } else { 0.01..0.51 };
            assert!(given_back.contains(&cores.best_effort_share), "{name}: {cores:?}");
        }
    }
}

/// With an oracle and instant grants a server holds as many cores as it has requests, up to all.
#[test]
fn the_ideal_allocator_holds_exactly_the_busy_cores() {
    let report = run("ideal", "oracle", 0.5);
    let cores = report.cores.unwrap();
    let busy = report.cpu_utilization * 8.0;
    assert!((cores.mean_cores - busy).abs() < 0.02, "{cores:?} for {busy}");
}

/// Without load, another application gets all cores except the one that must stay.
#[test]
fn an_idle_server_keeps_one_core() {
    let report = run("delay", "steal-random", 1e-6);
    let cores = report.cores.unwrap();
    assert!((cores.mean_cores - 1.0).abs() < 0.01 && (cores.best_effort_share - 0.875).abs() < 0.01, "{cores:?}");
}

#[test]
fn impossible_schedulings_are_refused() {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let params = none.params(&[]).unwrap();
    for scheduling in [
        Scheduling::new("shenango"),
        Scheduling { allocation_delay: Nanos::from_secs(2), ..Scheduling::new("delay") },
        Scheduling { check_cost: Nanos::from_secs(2), ..Scheduling::new("delay") },
    ] {
        let mut config = SimConfig::testbed(ServiceTime::Constant(Nanos(1_000)), 0.5);
        config.server.scheduling = Some(scheduling);
        assert!(simulate(&config, &none, &params).is_err());
    }
}
