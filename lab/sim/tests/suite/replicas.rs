//! A service of several servers: every request ends exactly once, after at most two attempts, and
//! overflow traffic agrees with theory.

use crate::common::{checker, run, scenario};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{
    Application, ClientModel, Costs, FirstServer, LockKind, LockModel, LockPolicy, NetworkModel, Replicas, Scheduling,
    Segment, ServerModel, Workload,
};
use leeward_sim::{RunOutcome, SimConfig, SimError, service_time::ServiceTime, simulate, simulate_wrapped};

const SCENARIOS: u64 = 80;

#[test]
fn random_scenarios_pass_the_conservation_check_per_server_and_in_total() {
    let registry = leeward_controllers::builtin();
    let (mut retried, mut unserved) = (0, 0);
    for seed in seeds() {
        let scenario = scenario::draw_with_replicas(seed, &registry);
        let replicas = scenario.config.replicas.expect("drawn with replicas");
        let checked = checker::check(&scenario).and_then(|report| {
            retried += report.totals.sent_again;
            unserved += report.totals.dropped + report.totals.client_total();
            check_attempts(&report, replicas)
        });
        if let Err(violation) = checked {
            panic!(
                "{violation}\nscenario: {}\nreplay: LEEWARD_SWARM_SEED={seed} cargo test -p leeward-sim --test suite replicas",
                scenario.description
            );
        }
    }
    assert!(retried > 10_000 && unserved > 1_000 || seeds().len() == 1, "{retried} sent again, {unserved} in vain");
}

fn check_attempts(report: &RunOutcome, replicas: Replicas) -> Result<(), String> {
    let totals = &report.totals;
    let sum = |of: fn(&RunOutcome) -> u64| report.replicas.iter().map(of).sum::<u64>();
    let rules = [
        ("servers", report.replicas.len() as u64 == u64::from(replicas.servers)),
        ("balance", totals.is_balanced() && report.replicas.iter().all(|server| server.totals.is_balanced())),
        ("at most two attempts", totals.sent_again <= totals.offered),
        ("attempts", sum(|server| server.totals.offered) == totals.offered + totals.sent_again),
        ("one place at a time", sum(|server| server.totals.unfinished) == totals.unfinished),
        ("one response", sum(|server| server.totals.completed) == totals.completed),
        ("received", sum(|server| server.server.received) == report.server.received),
        ("messages", sum(|server| server.server.tx_messages) == report.server.tx_messages),
        (
            "in vain only after two attempts",
            totals.dropped + totals.client_total() <= totals.sent_again
                && sum(|server| server.totals.dropped + server.totals.client_total())
                    == totals.sent_again + totals.dropped + totals.client_total(),
        ),
        (
            "the others get what the first does not serve",
            replicas.first != FirstServer::Primary || report.replicas[1].totals.offered == totals.sent_again,
        ),
        (
            "the windows are the run",
            report.windows.iter().map(|window| window.server.unwrap().rejected).sum::<u64>()
                == sum(|server| server.windows.iter().map(|window| window.server.unwrap().rejected).sum()),
        ),
        ("no deeper", report.replicas.iter().all(|server| server.replicas.is_empty())),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err(format!("{rule}: {totals:?} {:?}", report.server)),
        None => Ok(()),
    }
}

/// All seeds, or the one to reproduce.
#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration of the simulator
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=SCENARIOS).collect(),
    }
}

const PAIR: Replicas = Replicas { servers: 2, first: FirstServer::Primary, credit_timeout: None };

fn testbed(demand: f64) -> SimConfig {
    SimConfig {
        warmup: Nanos::from_millis(20),
        duration: Nanos::from_millis(120),
        window: Some(Nanos::from_millis(20)),
        audit: true,
        ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
    }
}

#[test]
fn an_unused_second_server_changes_nothing() {
    let alone = testbed(0.8);
    let (one, two) = (run(&alone, "none"), run(&SimConfig { replicas: Some(PAIR), ..alone }, "none"));
    assert_eq!((one.counts, one.server, one.latency, one.waiting), (two.counts, two.server, two.latency, two.waiting));
    assert_eq!((one.totals, one.mean_sojourn_ns), (two.totals, two.mean_sojourn_ns));
    assert!((one.cpu_utilization - 2.0 * two.cpu_utilization).abs() < 1e-9);
    assert_eq!(two.replicas[1].totals.offered, 0);
}

/// A lock that is only tried is a loss system of one place: the second server gets the requests
/// that the first rejects. With nothing between them, the pair is a loss system of two places
/// (Erlang's formula B).
#[test]
fn overflow_losses_match_erlang_b() {
    let (mean, load) = (Nanos::from_micros(10), 0.8);
    let network = NetworkModel { rtt: Nanos::ZERO, jitter: Nanos::ZERO };
    let config = SimConfig {
        server: ServerModel { cores: 16, costs: Costs::FREE, ..ServerModel::default() },
        network,
        slo: Nanos::from_millis(1),
        workload: Workload {
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(load / mean.as_secs_f64()) }],
            service: ServiceTime::Exponential(mean),
            ..testbed(1.0).workload
        },
        application: Application::one_lock(1.0, 1.0),
        locks: LockModel { kind: LockKind::Mutex, acquire: LockPolicy::Try },
        duration: Nanos::from_secs(2),
        window: None,
        audit: false,
        replicas: Some(PAIR),
        ..testbed(1.0)
    };
    let report = run(&config, "none");
    let share = |count: u64| count as f64 / report.totals.offered as f64;
    let first = load / (1.0 + load);
    let both = load * load / 2.0 / (1.0 + load + load * load / 2.0);
    let (again, lost) = (share(report.totals.sent_again), share(report.totals.dropped));
    assert!((again - first).abs() < 0.01, "{again} go on, not {first}");
    assert!((lost - both).abs() < 0.01, "{lost} are lost, not {both}");
}

#[test]
fn a_client_without_credit_in_time_tries_the_other_server() {
    let patient = testbed(1.6);
    let give_up = Some(Nanos::from_micros(10));
    let config = SimConfig { replicas: Some(Replicas { credit_timeout: give_up, ..PAIR }), ..patient };
    let report = run(&config, "breakwater");
    let counts = &report.counts;
    // 1.6 times the capacity of one server: two can serve it.
    assert!(counts.good as f64 > 0.95 * counts.offered as f64, "{counts:?}");
    assert!(counts.sent_again > counts.offered / 4, "{counts:?}");
    // A failure at the client is known after ten microseconds, a rejection after a round trip or
    // more.
    assert!(report.failure_delay.unwrap().p50.0.abs_diff(10_000) < 20, "{:?}", report.failure_delay);
    assert_eq!(report.failure_delay.unwrap().count, counts.sent_again);
    assert!(report.replicas[0].cpu_utilization > report.replicas[1].cpu_utilization);
}

#[test]
fn each_server_gets_its_share_of_the_objective() {
    let slo = Nanos::from_micros(220);
    let config = SimConfig { slo, replicas: Some(PAIR), ..testbed(1.2) };
    let report = run(&config, "breakwater");
    // The controller keeps each server's tail below half of the service's objective.
    assert!(report.replicas[0].latency.p99 < slo / 2, "{:?}", report.replicas[0].latency);
    assert_eq!(PAIR.objective(slo), slo / 2);
}

#[test]
fn round_robin_splits_the_load_evenly() {
    let config = SimConfig { replicas: Some(Replicas { first: FirstServer::InTurn, ..PAIR }), ..testbed(1.6) };
    let report = run(&config, "none");
    let [first, second] = [0, 1].map(|server| report.replicas[server].totals.offered as f64);
    assert!((first / second - 1.0).abs() < 0.02, "{first} and {second}");
    assert_eq!(report.totals.sent_again, 0);
    assert!(report.latency.p99 < Nanos::from_micros(100), "{:?}", report.latency);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let config = SimConfig { replicas: Some(PAIR), ..testbed(1.5) };
        let (first, again) = (run(&config, algorithm.name), run(&config, algorithm.name));
        assert_eq!(first, again, "{}", algorithm.name);
        assert_ne!(first.counts, run(&SimConfig { seed: 2, ..config }, algorithm.name).counts, "{}", algorithm.name);
    }
}

#[test]
fn unsupported_combinations_are_rejected() {
    let algorithm = leeward_controllers::builtin().find("none").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let good = SimConfig { replicas: Some(PAIR), ..testbed(0.5) };
    let replicas = |servers, give_up| Some(Replicas { servers, credit_timeout: give_up, ..PAIR });
    let scheduling = Some(Scheduling::new("delay"));
    let bad = [
        SimConfig { server: ServerModel { scheduling, ..good.server.clone() }, ..good.clone() },
        SimConfig { clients: ClientModel { pacing: Nanos(5), timeout: None }, ..good.clone() },
        SimConfig { clients: ClientModel { pacing: Nanos::ZERO, timeout: Some(Nanos(5)) }, ..good.clone() },
        SimConfig { replicas: replicas(1, None), ..good.clone() },
        SimConfig { replicas: replicas(17, None), ..good.clone() },
        SimConfig { replicas: replicas(2, Some(Nanos::ZERO)), ..good.clone() },
    ];
    for config in bad {
        let refused = simulate(&config, &algorithm, &params);
        assert!(matches!(&refused, Err(SimError::Config(why)) if why.contains("replicas")), "{refused:?}");
    }
    let looked_at = simulate_wrapped(&good, &algorithm, &params, |halves| halves);
    assert!(matches!(looked_at, Err(SimError::Config(_))));
}
