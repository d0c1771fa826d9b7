//! Every limiter's classic failure is lock-out: it shrinks under overload and never comes back. Here none may.

use leeward_control::registry::Registry;
use leeward_control::units::{Nanos, Rate};
use leeward_sim::config::{Segment, Workload};
use leeward_sim::{SimConfig, service::Service, simulate};

/// Twice the capacity for half a second, then half of it: the last second must be served as if nothing had happened.
#[test]
fn every_controller_comes_back_after_overload() {
    for algorithm in Registry::builtin().algorithms() {
        let testbed = SimConfig::testbed(Service::Exponential(Nanos::from_micros(10)), 1.0);
        let capacity = testbed.workload.demand[0].rate.0;
        let config = SimConfig {
            workload: Workload {
                clients: 200,
                demand: vec![
                    Segment { from: Nanos::ZERO, rate: Rate(capacity * 2.0) },
                    Segment { from: Nanos::from_millis(500), rate: Rate(capacity * 0.5) },
                ],
                ..testbed.workload.clone()
            },
            warmup: Nanos::from_secs(4),
            duration: Nanos::from_secs(5),
            ..testbed
        };
        let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        let served = report.counts.good as f64 / report.counts.offered as f64;
        println!("{}: {:.2} % of the demand in time", algorithm.name, served * 100.0);
        assert!(served > 0.97, "{} serves only {:.1} % long after the overload", algorithm.name, served * 100.0);
    }
}

/// The same from nothing at all: a server that has been idle must take full load at once.
#[test]
fn every_controller_takes_load_after_idling() {
    for algorithm in Registry::builtin().algorithms() {
        let testbed = SimConfig::testbed(Service::Exponential(Nanos::from_micros(10)), 1.0);
        let capacity = testbed.workload.demand[0].rate.0;
        let config = SimConfig {
            workload: Workload {
                demand: vec![
                    Segment { from: Nanos::ZERO, rate: Rate(0.0) },
                    Segment { from: Nanos::from_secs(1), rate: Rate(capacity * 0.7) },
                ],
                ..testbed.workload.clone()
            },
            warmup: Nanos::from_secs(4),
            duration: Nanos::from_secs(5),
            ..testbed
        };
        let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        let served = report.counts.good as f64 / report.counts.offered as f64;
        println!("{}: {:.2} % of the demand in time", algorithm.name, served * 100.0);
        assert!(served > 0.97, "{} serves only {:.1} % after idling", algorithm.name, served * 100.0);
    }
}
