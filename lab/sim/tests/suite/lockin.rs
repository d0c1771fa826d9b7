//! Admission control around a tier with a threading policy: requests held back by admission must
//! not keep the policy's setup small.

use crate::common::run;
use crate::common::tier::{config, draw, free};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::RunOutcome;
use leeward_sim::config::{Arrivals, Segment, SimConfig};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::PolicyModel;
use leeward_sim::threads::presets::preset;
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::registry;
use std::sync::Arc;

const STEP: Nanos = Nanos::from_millis(500);
const DEMAND: f64 = 8_000.0;

/// A tier in which one polling thread sustains some 1,700 requests per second, with curves from
/// elsewhere that promise 20,000.
fn config_with_wrong_curves(policy: &str, params: &[(&str, RawParam)]) -> SimConfig {
    let mut tier = free("SIP1", ServiceTime::Constant(Nanos::from_micros(500)));
    tier.cpus = 32;
    tier.costs = preset("leeward").unwrap();
    let curve = |setup: &str, us: f64, sustains: f64| {
        let point =
            |load| CurvePoint { load, p50_us: us, p99_us: us, p999_us: us, cpu: 1.0, samples: 2_000, spread: 0.01 };
        Curve { setup: setup.parse().unwrap(), points: vec![point(10.0), point(sustains)], max_load: sustains }
    };
    let curves = Curves::new(vec![curve("SIP1", 600.0, 6_000.0), curve("SDB1-50", 700.0, 20_000.0)]).unwrap();
    let params = registry::find(policy).unwrap().params(params).unwrap();
    tier.policy = Some(PolicyModel { name: policy.into(), params, curves: Some(Arc::new(curves)) });
    let mut config =
        config(tier, ServiceTime::Constant(Nanos::from_micros(20)), Arrivals::Poisson, DEMAND, 12_000.0, 1);
    config.workload.clients = 100;
    config.slo = Nanos::from_millis(5);
    config.network.rtt = Nanos::from_micros(20);
    config.workload.demand =
        vec![Segment { from: Nanos::ZERO, rate: Rate(DEMAND / 8.0) }, Segment { from: STEP, rate: Rate(DEMAND) }];
    config.window = Some(Nanos::from_millis(20));
    config
}

/// Goodput over demand, from a tenth of a second after the step on.
fn kept_share(report: &RunOutcome) -> f64 {
    let since = STEP + Nanos::from_millis(100);
    let late = report.windows.iter().filter(|window| window.clients.start.0 >= since.0);
    let (good, time) = late
        .fold((0, 0.0), |(good, time), window| (good + window.clients.counts.good, time + window.length.as_secs_f64()));
    good as f64 / time / DEMAND
}

#[test]
fn a_policy_that_knows_the_offered_demand_leaves_a_small_pool() {
    // The curves promise that one thread suffices for 5,400 requests per second, and admission lets
    // no more arrive.
    let kept = kept_share(&run(&config_with_wrong_curves("leeward", &[]), "breakwater"));
    assert!(kept >= 0.95, "{kept}");
}

#[test]
fn canary_a_policy_that_knows_only_admitted_demand_keeps_a_small_pool() {
    // The canary: if this policy recovered by itself, the test above would prove nothing.
    let kept =
        kept_share(&run(&config_with_wrong_curves("utune", &[("hold", RawParam::Text("off".into()))]), "breakwater"));
    assert!(kept <= 0.5, "{kept}");
}

#[test]
fn every_controller_works_with_every_tier() {
    let registry = leeward_controllers::builtin();
    for algorithm in registry.algorithms() {
        for seed in [1, 2, 3, 7, 101, 102, 103, 107, 201, 202, 203, 207] {
            let mut config = draw(seed);
            config.workload.clients = 1 + (seed as u32 % 50);
            config.audit = true;
            config.workload.demand.push(Segment { from: config.duration.scale(0.6), rate: Rate(0.0) });
            // Time for a backlog under a controller that has admitted too much.
            config.duration = config.duration * 10;
            let report = run(&config, algorithm.name);
            assert_eq!(report.totals.unfinished, 0, "{}, seed {seed}: {:?}", algorithm.name, report.totals);
        }
    }
}
