//! Scenarios, models and checks for several tests.

pub(crate) mod checker;
pub(crate) mod graphs;
pub(crate) mod lockout;
pub(crate) mod queueing;
pub(crate) mod scenario;
pub(crate) mod tier;

use leeward_core::units::Nanos;
use leeward_sim::config::{Application, Arrivals, FirstServer, Path, Replicas, Step};
use leeward_sim::graph::model::{CallPolicy, Graph};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, SimConfig, simulate};

/// Runs a controller with its defaults and checks the invariants.
pub(crate) fn run(config: &SimConfig, controller: &str) -> RunOutcome {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let outcome = simulate(config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
    assert!(outcome.violations.is_empty(), "{controller}: {:?}", outcome.violations);
    outcome
}

/// Requests that all need a resource outside of the cores: a tenth of the work, then the disk, then
/// another tenth.
pub(crate) fn disk() -> Application {
    let steps = vec![Step::Work(0.1), Step::Acquire(0), Step::Wait(0.8), Step::Release(0), Step::Work(0.1)];
    Application { locks: vec!["disk".into()], paths: vec![Path { share: 1.0, steps }] }
}

/// A configuration of each kind of simulated plant: a server, replicas, a graph and a tier.
pub(crate) fn plants() -> Vec<(&'static str, SimConfig)> {
    let service = ServiceTime::Exponential(Nanos::from_micros(10));
    let server = SimConfig::testbed(service.clone(), 0.5);
    let pair = Replicas { servers: 2, first: FirstServer::Primary, credit_timeout: None };
    let services = vec![graphs::free("a", 1, service.clone()), graphs::free("b", 1, service.clone())];
    let graph = Graph { services, calls: vec![graphs::call(0, 1)], policy: CallPolicy::default() };
    let threads = tier::config(tier::free("SIB4", service.clone()), service, Arrivals::Poisson, 10_000.0, 1_000.0, 3);
    vec![
        ("a server", server.clone()),
        ("replicas", SimConfig { replicas: Some(pair), ..server }),
        ("a graph", graphs::config(graph, 10, 10_000.0, Nanos::from_secs(1), 1_000, 3)),
        ("a tier", threads),
    ]
}
