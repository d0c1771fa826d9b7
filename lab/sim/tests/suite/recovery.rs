//! The classic failure of limiters is lock-out: they shrink under overload and don't recover. No
//! controller may do this.

use leeward_core::units::{Nanos, Rate, Time};
use leeward_outcome::FineWindow;
use leeward_sim::config::{Segment, Workload};
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

/// Length of the windows in which recovery is checked.
const WINDOW: Nanos = Nanos::from_millis(20);

/// Time after the overload within which a controller must have recovered for good. Most controllers
/// need a window or two; those that learn slowly, as published, get the time that they need.
fn recovers_within(name: &str) -> Nanos {
    match name {
        "seda" => Nanos::from_millis(3_000),     // rates recover in steps per response
        "throttle" => Nanos::from_millis(3_000), // it remembers the overload for a window
        "topfull" => Nanos::from_millis(3_000),  // the rate moves by a few percent per interval
        "gradient" => Nanos::from_millis(500),
        _ => Nanos::from_millis(200),
    }
}

/// Twice the capacity for half a second, then half of it: after a short time, and until the end,
/// all load must be served.
#[test]
fn every_controller_recovers_after_overload() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
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
            fine_window: Some(WINDOW),
            ..testbed
        };
        let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        let served = report.counts.good as f64 / report.counts.offered as f64;
        println!("{}: {:.2} % of the demand in time", algorithm.name, served * 100.0);
        // Poisson arrivals of a window vary by a percent; 90 % is well below that and far above a
        // lock-out.
        let least = 0.9 * capacity * 0.5 * WINDOW.as_secs_f64();
        let over = Nanos::from_millis(500);
        let poor = |window: &&FineWindow| window.start >= Time::ZERO + over && (window.good as f64) < least;
        let back = report
            .fine_windows
            .iter()
            .rfind(poor)
            .map_or(Nanos::ZERO, |window| (window.start + WINDOW).since(Time::ZERO + over));
        println!("{}: back {back} after the overload", algorithm.name);
        assert!(back <= recovers_within(algorithm.name), "{} is back {back} after the overload", algorithm.name);
        assert!(served > 0.97, "{} serves only {:.1} % long after the overload", algorithm.name, served * 100.0);
    }
}

/// The same after no load: an idle server must take full load at once.
#[test]
fn every_controller_takes_load_after_idling() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
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
