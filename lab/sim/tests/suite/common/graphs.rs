//! Graphs for tests: services without costs besides computing, and helpers to run them.

use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{NetworkModel, Segment, SimConfig, Workload};
use leeward_sim::graph::model::{
    CallModel, CallOrder, CallPolicy, ControlPlacement, DeadlinePolicy, DownstreamReports, Graph, ServiceModel,
    StartCondition,
};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, simulate};
use leeward_workload::rng::{Purpose, Rng};
use std::sync::Arc;

/// A service of one server, with messages at no cost.
pub(crate) fn free(name: &str, cores: u32, service: ServiceTime) -> ServiceModel {
    let none = Nanos::ZERO;
    ServiceModel { name: name.into(), servers: 1, cores, service, resume: none, receive: none, send: none, rtt: none }
}

/// A call that every request makes once.
pub(crate) fn call(from: usize, to: usize) -> CallModel {
    CallModel { from, to, times: 1, probability: 1.0, order: CallOrder::Parallel }
}

/// A run of `graph` at `rate` requests per second for `millis` ms.
pub(crate) fn config(graph: Graph, clients: u32, rate: f64, slo: Nanos, millis: u64, seed: u64) -> SimConfig {
    let testbed = SimConfig::testbed(ServiceTime::Constant(Nanos(1)), 1.0);
    SimConfig {
        network: NetworkModel { rtt: Nanos::ZERO, jitter: Nanos::ZERO },
        workload: Workload {
            clients,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
            ..testbed.workload.clone()
        },
        graph: Some(Arc::new(graph)),
        slo,
        warmup: Nanos::from_millis(millis / 4),
        duration: Nanos::from_millis(millis),
        seed,
        audit: true,
        ..testbed
    }
}

/// Runs `config` under a controller and checks the invariants.
pub(crate) fn run(config: &SimConfig, controller: &str, params: &[(&str, RawParam)]) -> RunOutcome {
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let report = simulate(config, &algorithm, &algorithm.params(params).unwrap()).unwrap();
    assert!(report.violations.is_empty(), "{controller}: {:?}", report.violations);
    assert!(report.totals.is_balanced(), "{controller}: {:?}", report.totals);
    report
}

/// A random graph with costs and a random load, drawn from `seed`. Calls lead from earlier services
/// to later ones.
pub(crate) fn draw(seed: u64) -> SimConfig {
    let mut rng = Rng::new(seed, Purpose::Paths);
    let services = 2 + rng.below(5) as usize;
    let micros = |rng: &mut Rng, below: u64| Nanos(rng.below(below * 1_000));
    let mut graph = Graph { services: Vec::new(), calls: Vec::new(), policy: CallPolicy::default() };
    for index in 0..services {
        let mean = Nanos(500 + rng.below(40_000));
        graph.services.push(ServiceModel {
            name: format!("s{index}"),
            servers: 1 + rng.below(4) as u32,
            cores: 1 + rng.below(6) as u32,
            service: [ServiceTime::Exponential(mean), ServiceTime::Constant(mean)][rng.below(2) as usize].clone(),
            resume: micros(&mut rng, 3),
            receive: micros(&mut rng, 2),
            send: micros(&mut rng, 2),
            rtt: micros(&mut rng, 50),
        });
        // A caller for every service, and sometimes a second one.
        for _ in 0..=rng.below(2) {
            let from = rng.below(index.max(1) as u64) as usize;
            if index > 0 && !graph.calls.iter().any(|known| (known.from, known.to) == (from, index)) {
                let probability = if rng.below(2) == 0 { 1.0 } else { rng.unit() };
                let when = [CallOrder::Parallel, CallOrder::Sequential][rng.below(2) as usize];
                graph.calls.push(CallModel {
                    from,
                    to: index,
                    times: 1 + rng.below(3) as u16,
                    probability,
                    order: when,
                });
            }
        }
    }
    graph.policy = CallPolicy {
        start: [StartCondition::Admitted, StartCondition::Reserved][rng.below(2) as usize],
        control: [ControlPlacement::Everywhere, ControlPlacement::Entry][rng.below(2) as usize],
        downstream: [DownstreamReports::Off, DownstreamReports::On][rng.below(2) as usize],
        deadlines: [DeadlinePolicy::Ignored, DeadlinePolicy::Enforced][rng.below(2) as usize],
        retries: [0.0, 0.1][rng.below(2) as usize],
    };
    let rate = graph.capacity().0 * (0.2 + 2.3 * rng.unit());
    let slo = graph.spans()[0].scale(2.0 + 10.0 * rng.unit());
    config(graph, 1 + rng.below(60) as u32, rate.min(400_000.0), slo, 40, seed)
}
