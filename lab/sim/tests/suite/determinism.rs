//! The same seed gives the same outcome, to the last bit, regardless of earlier runs.

use leeward_core::units::Nanos;
use leeward_sim::config::{Arrivals, NetworkModel, Shares, Workload};
use leeward_sim::{RunOutcome, SimConfig, SimError, service_time::ServiceTime, simulate};

fn run(controller: &str, seed: u64) -> RunOutcome {
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let config = SimConfig {
        warmup: Nanos::from_millis(20),
        duration: Nanos::from_millis(60),
        window: Some(Nanos::from_millis(10)),
        seed,
        ..SimConfig::testbed(ServiceTime::Lognormal { mean: Nanos::from_micros(10), sigma: 1.0 }, 1.3)
    };
    simulate(&config, &algorithm, &algorithm.params(&[]).unwrap()).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let (first, again, other) = (run(algorithm.name, 5), run(algorithm.name, 5), run(algorithm.name, 6));
        assert_eq!(first, again, "{}", algorithm.name);
        assert_ne!(first.counts, other.counts, "{}: the seed must matter", algorithm.name);
    }
}

#[test]
fn every_controller_is_offered_the_same_requests() {
    let offered = run("none", 5).totals.offered;
    for algorithm in leeward_controllers::builtin().algorithms() {
        assert_eq!(run(algorithm.name, 5).totals.offered, offered, "{}", algorithm.name);
    }
}

/// Pinned counts: another number on another machine, or after a change without effect on results,
/// is a defect.
#[test]
fn the_run_of_a_seed_never_changes() {
    let pinned = |report: RunOutcome| {
        let totals = report.totals;
        (totals.offered, totals.completed, totals.dropped, totals.client_total(), report.events.unwrap())
    };
    assert_eq!(pinned(run("none", 5)), (66_363, 51_060, 0, 0, 286_072));
    assert_eq!(pinned(run("breakwater", 5)), (66_363, 45_122, 753, 20_410, 281_565));
    let algorithm = leeward_controllers::builtin().find("dagor").unwrap().clone();
    let testbed = SimConfig::testbed(ServiceTime::Bimodal(Nanos::from_micros(10)), 1.3);
    let jittery = SimConfig {
        network: NetworkModel { jitter: Nanos::from_micros(5), ..testbed.network },
        workload: Workload { arrivals: Arrivals::Constant, shares: Shares::Zipf(0.9), ..testbed.workload.clone() },
        warmup: Nanos::from_millis(20),
        duration: Nanos::from_millis(60),
        ..testbed
    };
    let report = simulate(&jittery, &algorithm, &algorithm.params(&[]).unwrap()).unwrap();
    assert_eq!(pinned(report), (66299, 34021, 810, 31427, 211679));
}

/// Simulates possible but extreme configurations.
#[test]
fn extremes_are_simulated() {
    let longest = SimConfig::testbed(ServiceTime::Constant(Nanos::MAX), 0.5);
    let small = SimConfig::testbed(ServiceTime::Exponential(Nanos(1_000)), 1.5);
    let many_cores = SimConfig {
        server: leeward_sim::config::ServerModel { cores: 128, ..small.server.clone() },
        network: NetworkModel { rtt: Nanos::ZERO, jitter: Nanos::ZERO },
        ..small.clone()
    };
    let no_objective = SimConfig { slo: Nanos::ZERO, ..small };
    for extreme in [longest, many_cores, no_objective] {
        let config = SimConfig { warmup: Nanos::ZERO, duration: Nanos::from_millis(2), audit: true, ..extreme };
        for algorithm in leeward_controllers::builtin().algorithms() {
            let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
            assert_eq!(report.violations, Vec::<String>::new(), "{} {config:?}", algorithm.name);
        }
    }
}

#[test]
fn impossible_configurations_are_refused() {
    let algorithm = leeward_controllers::builtin().find("none").unwrap().clone();
    let good = SimConfig::testbed(ServiceTime::Constant(Nanos(1_000)), 0.5);
    let no_clients = SimConfig { workload: Workload { clients: 0, ..good.workload.clone() }, ..good.clone() };
    let no_cores =
        SimConfig { server: leeward_sim::config::ServerModel { cores: 0, ..good.server.clone() }, ..good.clone() };
    let only_warmup = SimConfig { warmup: good.duration, ..good.clone() };
    let nan = SimConfig::testbed(ServiceTime::Constant(Nanos(1_000)), f64::NAN);
    let tiny_windows = SimConfig { window: Some(Nanos(1)), ..good.clone() };
    let endless_batch =
        SimConfig { server: leeward_sim::config::ServerModel { batch: u32::MAX, ..good.server.clone() }, ..good };
    let no_samples = SimConfig::testbed(ServiceTime::Empirical(Vec::new().into()), 0.5);
    let infinite_sigma = SimConfig::testbed(ServiceTime::Lognormal { mean: Nanos(1_000), sigma: f64::INFINITY }, 0.5);
    for config in [no_clients, no_cores, only_warmup, nan, tiny_windows, endless_batch, no_samples, infinite_sigma] {
        let refused = simulate(&config, &algorithm, &algorithm.params(&[]).unwrap());
        assert!(matches!(refused, Err(SimError::Config(_))), "{config:?}");
    }
}
