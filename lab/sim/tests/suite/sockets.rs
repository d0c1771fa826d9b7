//! A server with sockets: savings under load agree with the costs, there are none with little load,
//! and the accounting holds.

use crate::common::{checker, scenario};
use leeward_core::units::Nanos;
use leeward_sim::config::{Costs, ServerModel, SimConfig, SocketCosts};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, simulate};

const SCENARIOS: u64 = 150;
const SOCKETS: SocketCosts = SocketCosts { receive: Nanos(300), send: Nanos(200), batched_write: Nanos(5_000) };

#[test]
fn random_scenarios_with_sockets_pass_the_conservation_check() {
    let registry = leeward_controllers::builtin();
    for seed in 1..=SCENARIOS {
        let mut scenario = scenario::draw(seed, &registry);
        scenario.config.server.sockets = Some(SOCKETS);
        if let Err(violation) = checker::check(&scenario) {
            panic!("{violation}\nseed {seed}: {}", scenario.description);
        }
    }
}

/// A core without control under `demand` times its capacity.
fn run(service: Nanos, demand: f64, clients: u32, sockets: Option<SocketCosts>) -> RunOutcome {
    let costs = Costs { receive: Nanos(2_000), spawn: Nanos(100), send: Nanos(6_000), ..Costs::default() };
    let server = ServerModel { cores: 1, costs, sockets, ..ServerModel::default() };
    let testbed = SimConfig::testbed(ServiceTime::Constant(service), 1.0);
    let mut config =
        SimConfig { warmup: Nanos::from_millis(400), duration: Nanos::from_millis(800), server, ..testbed };
    config.workload.clients = clients;
    config.workload.demand[0].rate.0 = config.server.capacity(service).0 * demand;
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let report = simulate(&config, &none, &none.params(&[]).unwrap()).unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    report
}

/// CPU time of a request, µs, for a core that is never idle.
fn per_request_us(report: &RunOutcome) -> f64 {
    report.measured.as_secs_f64() * 1e6 / report.counts.completed as f64
}

#[test]
fn batched_socket_calls_reduce_the_cost_per_request() {
    // Ten clients with 256 unanswered requests each: the core reads 64 at a time.
    let reading = (2.0 + 63.0 * 0.3) / 64.0;
    // A response after 30 us of work is written at once, in its own write. Others of its session
    // are pending, so it costs 0.2 us, and a write.
    let slow = per_request_us(&run(Nanos::from_micros(30), 3.0, 10, Some(SOCKETS)));
    let expected = 30.0 + 0.1 + reading + 0.2 + 6.0;
    assert!((slow / expected - 1.0).abs() < 0.02, "{slow:.3} of {expected:.3}");
    // Responses that take 1.2 us each share a write per 20 us. So they cost a fifth, and twice as
    // much demand keeps the core busy.
    let quick = per_request_us(&run(Nanos::from_micros(1), 8.0, 10, Some(SOCKETS)));
    let expected = 1.0 + 0.1 + reading + 0.2 + 6.0 / 17.0;
    assert!((quick / expected - 1.0).abs() < 0.06, "{quick:.3} of {expected:.3}");
    // Without sockets they cost the full costs.
    let alone = per_request_us(&run(Nanos::from_micros(1), 4.0, 10, None));
    assert!((alone / 9.1 - 1.0).abs() < 0.01, "{alone:.3}");
}

#[test]
fn unbatched_socket_calls_save_nothing() {
    let service = Nanos::from_micros(10);
    let (with, without) = (run(service, 0.3, 1_000, Some(SOCKETS)), run(service, 0.3, 1_000, None));
    assert_eq!(with.totals.offered, without.totals.offered);
    let (p50, before) = (with.latency.p50.as_micros_f64(), without.latency.p50.as_micros_f64());
    assert!((p50 / before - 1.0).abs() < 0.02, "{p50} of {before}");
    assert!((with.cpu_utilization / without.cpu_utilization - 1.0).abs() < 0.02);
}
