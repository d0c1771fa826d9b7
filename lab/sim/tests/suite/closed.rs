//! Closed-loop clients: the closed form of the machine-repair model, and accounting under
//! controllers that reject.

use crate::common::run;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Arrivals, Costs, FirstServer, NetworkModel, Replicas, Segment, ServerModel, SimConfig};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::simulate;

const SERVICE: Nanos = Nanos::from_micros(10);

/// A closed loop of `clients` that would issue `demand` times the capacity of four cores if
/// requests took no time.
fn closed(clients: u32, demand: f64, costs: Costs, rtt: Nanos) -> SimConfig {
    let testbed = SimConfig::testbed(ServiceTime::Exponential(SERVICE), 1.0);
    let mut config = SimConfig {
        server: ServerModel { cores: 4, costs, ..ServerModel::default() },
        network: NetworkModel { rtt, jitter: Nanos::ZERO },
        warmup: Nanos::from_millis(50),
        duration: Nanos::from_secs(2),
        ..testbed
    };
    let rate = Rate(config.server.capacity(SERVICE).0 * demand);
    config.workload.demand = vec![Segment { from: Nanos::ZERO, rate }];
    config.workload.clients = clients;
    config.workload.arrivals = Arrivals::Closed;
    config
}

/// Requests per second of `clients` with mean think time `think` at four servers: a birth-death
/// chain.
fn machine_repair(clients: u32, think: f64, service: f64) -> f64 {
    let mut weight = 1.0;
    let (mut sum, mut served) = (1.0, 0.0);
    for waiting in 1..=clients {
        let busy = f64::from(waiting.min(4));
        weight *= f64::from(clients - waiting + 1) / think * service / busy;
        sum += weight;
        served += weight * busy / service;
    }
    served / sum
}

#[test]
fn a_closed_loop_is_the_machine_repair_model() {
    for (clients, demand) in [(8, 0.5), (8, 2.0), (40, 0.9), (40, 3.0)] {
        let config = closed(clients, demand, Costs::FREE, Nanos::ZERO);
        let think = f64::from(clients) / config.workload.demand[0].rate.0;
        let expected = machine_repair(clients, think, SERVICE.as_secs_f64());
        let report = run(&config, "none");
        let served = report.counts.completed as f64 / report.measured.as_secs_f64();
        assert!((served / expected - 1.0).abs() < 0.02, "{clients} at {demand}: {served:.0}/s of {expected:.0}/s");
    }
}

/// A rejection ends a request like a response does: its client continues.
#[test]
fn clients_continue_after_rejections_and_expiries() {
    let config =
        SimConfig { duration: Nanos::from_millis(250), ..closed(1_000, 2.0, Costs::default(), Nanos::from_micros(10)) };
    for controller in ["breakwater", "dagor", "seda", "codel"] {
        let totals = run(&config, controller).totals;
        // SEDA's clients begin with a few requests per second.
        let fewest = if controller == "seda" { 3_000 } else { 20_000 };
        assert!(totals.completed > fewest, "{controller}: {totals:?}");
        let not_answered = totals.offered - totals.completed;
        assert!(not_answered > 2_000, "no more than what its clients can have under way: {controller}: {totals:?}");
    }
}

#[test]
fn a_closed_loop_is_of_one_server() {
    let config = closed(8, 0.5, Costs::FREE, Nanos::ZERO);
    let config = SimConfig {
        replicas: Some(Replicas { servers: 2, first: FirstServer::Primary, credit_timeout: None }),
        ..config
    };
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let refused = simulate(&config, &none, &none.params(&[]).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("closed loop"), "{refused}");
}
