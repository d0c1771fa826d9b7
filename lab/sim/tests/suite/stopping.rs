//! Runs that the caller stops: of a server, of replicas, of a graph and of a tier.

use crate::common::{graphs, tier};
use leeward_core::units::Nanos;
use leeward_sim::config::{Arrivals, FirstServer, Replicas};
use leeward_sim::graph::model::{CallPolicy, Graph};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, SimConfig, SimError, simulate_until};
use std::sync::atomic::{AtomicBool, Ordering};

/// Longer than any test may take, but within a run's maximum duration.
const LONG: Nanos = Nanos::from_secs(3_000);

fn service() -> ServiceTime {
    ServiceTime::Exponential(Nanos::from_micros(10))
}

fn plants() -> Vec<(&'static str, SimConfig)> {
    let server = SimConfig::testbed(service(), 0.5);
    let pair = Replicas { servers: 2, first: FirstServer::Primary, credit_timeout: None };
    let services = vec![graphs::free("a", 1, service()), graphs::free("b", 1, service())];
    let graph = Graph { services, calls: vec![graphs::call(0, 1)], policy: CallPolicy::default() };
    let threads = tier::config(tier::free("SIB4", service()), service(), Arrivals::Poisson, 10_000.0, 1_000.0, 3);
    vec![
        ("a server", server.clone()),
        ("replicas", SimConfig { replicas: Some(pair), ..server }),
        ("a graph", graphs::config(graph, 10, 10_000.0, Nanos::from_secs(1), 1_000, 3)),
        ("a tier", threads),
    ]
}

fn run(config: &SimConfig, stop: &AtomicBool) -> Result<RunOutcome, SimError> {
    let registry = leeward_controllers::builtin();
    let none = registry.find("none").unwrap();
    simulate_until(config, none, &none.params(&[]).unwrap(), stop)
}

#[test]
fn a_run_can_be_stopped_midway() {
    for (name, config) in plants() {
        let long = SimConfig { duration: LONG, window: None, ..config };
        let stop = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&long, &stop));
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        assert_eq!(ended.unwrap_err(), SimError::Stopped, "{name}");
    }
}

#[test]
fn a_stop_flag_that_is_never_set_changes_nothing() {
    for (name, config) in plants() {
        let short =
            SimConfig { warmup: Nanos::from_millis(1), duration: Nanos::from_millis(5), window: None, ..config };
        let registry = leeward_controllers::builtin();
        let none = registry.find("none").unwrap();
        let plain = leeward_sim::simulate(&short, none, &none.params(&[]).unwrap()).unwrap();
        let watched = run(&short, &AtomicBool::new(false)).unwrap();
        assert_eq!((plain.totals, plain.events), (watched.totals, watched.events), "{name}");
    }
}
