//! Tiers whose policy changes the setup all the time: no request is lost or waits for ever, and in
//! the end every thread is idle.

use crate::common::tier::{draw, run};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::SimConfig;
use leeward_sim::config::Segment;
use leeward_sim::threads::model::PolicyModel;
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::registry;
use leeward_workload::rng::{Purpose, Rng};
use std::sync::Arc;

const SETUPS: [&str; 10] =
    ["SIB2", "SIP1", "SDB1-4", "SDP2-3", "AIB1-0-1", "AIP1-0-2", "ADB1-2-2", "ADP1-4-1", "SIP2@16us", "ADB2-1-1"];

/// Curves in which every setup is the best at some load: between half of `rate` and twice `rate`
/// the best setup changes with every tenth.
fn random_curves(rate: f64, seed: u64) -> Curves {
    let mut rng = Rng::new(seed, Purpose::Paths);
    let loads: Vec<f64> = (1..=40).map(|step| rate * 0.1 * f64::from(step)).collect();
    let curve = |setup: &&str| {
        let point = |load: &f64| {
            let us = 100.0 + 100.0 * rng.unit();
            CurvePoint { load: *load, p50_us: us, p99_us: us, p999_us: us, cpu: 1.0, samples: 2_000, spread: 0.01 }
        };
        Curve { setup: setup.parse().unwrap(), points: loads.iter().map(point).collect(), max_load: rate * 4.0 }
    };
    Curves::new(SETUPS.iter().map(curve).collect()).unwrap()
}

/// A random tier under `policy`, whose clients stop sending before the end.
fn config(seed: u64, policy: &str, params: &[(&str, RawParam)]) -> SimConfig {
    let mut config = draw(seed);
    let rate = config.workload.demand[0]
        .rate
        .0
        .min(0.5 * config.tier.as_ref().unwrap().capacity(config.workload.service.mean()).0);
    config.workload.demand = vec![
        Segment { from: Nanos::ZERO, rate: Rate(rate) },
        Segment { from: config.duration.scale(0.5), rate: Rate(0.0) },
    ];
    // Time for a backlog of the smallest setup.
    config.duration = config.duration * 10;
    let tier = config.tier.as_mut().unwrap();
    // No costs besides the wake-ups, because the sustained load of each setup does not matter here.
    tier.cpus = tier.cpus.max(4);
    let params = registry::find(policy).unwrap().params(params).unwrap();
    tier.policy = Some(PolicyModel { name: policy.into(), params, curves: Some(Arc::new(random_curves(rate, seed))) });
    config
}

#[test]
fn a_frequently_switching_policy_loses_no_request() {
    let mut switches = 0;
    for seed in 1..=150 {
        let params = [("window", RawParam::Integer(2)), ("hold", RawParam::Text("off".into()))];
        let config = config(seed, "utune", &params);
        let report = run(&config);
        switches += report.threads.unwrap().switches;
        assert_eq!(report.totals.unfinished, 0, "seed {seed}: {:?}", report.totals);
    }
    assert!(switches > 20_000, "{switches} switches prove nothing");
}

#[test]
fn every_policy_loses_no_request() {
    for policy in ["utune", "leeward", "oracle", "tbd", "ipi", "rotate"] {
        for seed in 1..=30 {
            let config = config(seed, policy, &[]);
            let report = run(&config);
            assert_eq!(report.totals.unfinished, 0, "{policy}, seed {seed}: {:?}", report.totals);
        }
    }
}
