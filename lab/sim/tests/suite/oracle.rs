//! The oracle: in time, at no cost, and better than all others.

use leeward_core::units::{Nanos, Rate};
use leeward_outcome::RunOutcome;
use leeward_sim::config::{Application, Graph};
use leeward_sim::graph::model::CallPolicy;
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{SimConfig, SimError, oracle, simulate};
use std::sync::Arc;

fn run(controller: &str, application: Application, rate: f64) -> RunOutcome {
    let service = ServiceTime::Exponential(Nanos::from_micros(10));
    let mut config = SimConfig {
        warmup: Nanos::from_millis(50),
        duration: Nanos::from_millis(200),
        application,
        audit: false,
        ..SimConfig::testbed(service, 1.0)
    };
    config.workload.demand[0].rate = Rate(rate);
    let registry = oracle::registry();
    let algorithm = registry.find(controller).unwrap();
    simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap()
}

#[test]
fn the_oracle_is_in_time_and_an_upper_bound_of_goodput() {
    let cases = [
        (Application::default(), 400_000.0),
        (Application::default(), 1_700_000.0),
        (Application::two_locks(0.2), 400_000.0),
        (Application::one_lock(0.2, 0.7), 1_000_000.0),
    ];
    for (application, rate) in cases {
        let bound = run("oracle", application.clone(), rate);
        assert_eq!(bound.counts.dropped, 0, "it refuses at the client");
        let late = 1.0 - bound.counts.good as f64 / bound.counts.completed as f64;
        assert!(late < 0.005, "{late} late at {rate}/s");
        for controller in ["auto", "breakwater", "codel", "none", "edge"] {
            let other = run(controller, application.clone(), rate);
            let part = other.counts.good as f64 / bound.counts.good as f64;
            assert!(part < 1.005, "{controller} has {part} of the oracle's at {rate}/s");
        }
    }
}

#[test]
fn with_plain_locks_auto_serves_nearly_what_the_lock_allows() {
    // The second lock is saturated at 125 k/s.
    for rate in [200_000.0, 1_000_000.0, 4_000_000.0] {
        let outcome = run("auto", Application::two_locks(0.2), rate);
        let good = outcome.counts.good as f64 / 0.15;
        assert!(good > 0.85 * 125_000.0, "{good}/s in time at {rate}/s");
    }
}

#[test]
fn the_oracle_does_not_count_requests_that_end_at_their_client() {
    // A client sends one request per millisecond and queues up to sixteen more: most admitted
    // requests never leave.
    let service = ServiceTime::Constant(Nanos::from_micros(10));
    let mut config = SimConfig { duration: Nanos::from_secs(3), ..SimConfig::testbed(service, 1.0) };
    config.workload.clients = 10;
    config.workload.demand[0].rate = Rate(100_000.0);
    config.clients.pacing = Nanos::from_millis(1);
    config.slo = Nanos::from_millis(50);
    let outcome = simulate(&config, &oracle::ALGORITHM, &oracle::ALGORITHM.params(&[]).unwrap()).unwrap();
    assert!(outcome.counts.good > 9_000, "ten clients can send 10,000, and {} were in time", outcome.counts.good);
}

#[test]
fn the_oracle_is_rejected_for_unsupported_models() {
    let service = ServiceTime::Constant(Nanos::from_micros(10));
    let graph = Graph { services: Vec::new(), calls: Vec::new(), policy: CallPolicy::default() };
    let config = SimConfig { graph: Some(Arc::new(graph)), ..SimConfig::testbed(service, 1.0) };
    let refused = simulate(&config, &oracle::ALGORITHM, &oracle::ALGORITHM.params(&[]).unwrap());
    assert!(matches!(refused, Err(SimError::Config(message)) if message.contains("oracle")));
}
