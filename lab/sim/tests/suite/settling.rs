//! Runs that decide themselves when to measure have the outcome of a run with those times fixed,
//! on every plant, also after a measurement was discarded.

use crate::common::{plants, scenario};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Observation, Segment, StoppingRule};
use leeward_sim::{RunOutcome, SimConfig, simulate};

const WINDOW: Nanos = Nanos::from_micros(500);

fn rule() -> StoppingRule {
    StoppingRule {
        observation: Observation::Adaptive,
        window: WINDOW,
        min_windows: 50,
        min_answers: 0,
        settle_within: Nanos::from_millis(400),
        measure_within: Nanos::from_millis(400),
        precision: 0.05,
        min_responses: 100,
        least_measured: Nanos::ZERO,
        burst_span: Nanos::ZERO,
    }
}

fn run(config: &SimConfig, controller: &str) -> RunOutcome {
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    simulate(config, &algorithm, &params).unwrap()
}

/// Checks the run against one with fixed times; returns the start of its measurement.
fn check(name: &str, config: &SimConfig, controller: &str) -> Nanos {
    let config = SimConfig { stopping: Some(rule()), window: None, fine_window: None, ..config.clone() };
    let adaptive = run(&config, controller);
    assert_eq!(adaptive.violations, Vec::<String>::new(), "{name}");
    let settling = adaptive.settling.unwrap();
    let (warmup, duration) = (settling.from, settling.from + adaptive.measured);
    let fixed = run(&SimConfig { stopping: None, warmup, duration, ..config }, controller);
    // Work that lasts longer than a window may begin before the run knows that it will be measured.
    assert!((adaptive.cpu_utilization - fixed.cpu_utilization).abs() < 0.02, "{name}");
    let own = |outcome: &RunOutcome| RunOutcome { events: None, cpu_utilization: 0.0, ..outcome.clone() };
    let comparable = |outcome: RunOutcome| RunOutcome {
        settling: None,
        replicas: outcome.replicas.iter().map(own).collect(),
        ..own(&outcome)
    };
    assert_eq!(comparable(adaptive), comparable(fixed), "{name}");
    warmup
}

#[test]
fn each_plant_measures_the_interval_that_it_chose() {
    for (name, config) in plants() {
        let from = check(name, &config, "none");
        assert!(from < Nanos::from_millis(100), "{name}: {from}");
    }
}

/// Demand rises far beyond the capacity when the first measurement is under way, so that the run
/// has to begin again.
#[test]
fn a_discarded_measurement_leaves_nothing_behind() {
    // The graph and the tier are nearly idle before.
    for ((name, mut config), factor) in plants().into_iter().zip([3.0, 3.0, 30.0, 60.0]) {
        let rate = config.workload.demand[0].rate.0;
        config.workload.demand.push(Segment { from: Nanos::from_millis(40), rate: Rate(rate * factor) });
        let from = check(name, &config, "none");
        assert!(from >= Nanos::from_millis(40), "{name}: {from}");
    }
}

#[test]
fn random_scenarios_measure_the_interval_that_they_chose() {
    let registry = leeward_controllers::builtin();
    for seed in 1..=12 {
        let drawn = scenario::draw(seed, &registry);
        check(&drawn.description, &drawn.config, drawn.algorithm.name);
        let drawn = scenario::draw_with_replicas(seed, &registry);
        check(&drawn.description, &drawn.config, drawn.algorithm.name);
    }
}
