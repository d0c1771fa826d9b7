//! The simulator's ideal wire compared with the real protocol. The same arrivals, services and
//! controllers run through the simulator, and as bytes through both ends of the protocol in virtual
//! time (`leeward_pair`).
//!
//! Both need not agree in every request. A client of the protocol registers first, its session
//! begins with the call on trust, and the controllers' random draws come in another order.

use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_pair::{ClientId, Pair, PairConfig, WireModel, Work};
use leeward_sim::config::{Costs, Segment};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{SimConfig, simulate};
use leeward_wire::Budget;
use leeward_workload::ArrivalStream;
use leeward_workload::rng::{Purpose, Rng};

const MEAN: Nanos = Nanos::from_micros(10);
const WARMUP: Nanos = Nanos::from_millis(100);
const DURATION: Nanos = Nanos::from_millis(300);

/// One core without costs besides the service time, with a hundred clients.
fn scenario(load: f64, seed: u64) -> SimConfig {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(MEAN), 1.0);
    config.server.cores = 1;
    config.server.costs = Costs::FREE;
    config.workload.clients = 100;
    let rate = leeward_core::units::Rate(config.server.capacity(MEAN).0 * load);
    config.workload.demand = vec![Segment { from: Nanos::ZERO, rate }];
    (config.seed, config.warmup, config.duration) = (seed, WARMUP, DURATION);
    config
}

/// Goodput in the simulator, requests per second.
fn ideal(config: &SimConfig, algorithm: &Algorithm) -> f64 {
    let report = simulate(config, algorithm, &Params::default()).unwrap();
    report.counts.good as f64 / report.measured.as_secs_f64()
}

/// Goodput through both ends of the protocol, requests per second.
fn real(config: &SimConfig, algorithm: &Algorithm, chunk_max: usize) -> f64 {
    let wire = WireModel { delay: config.network.rtt / 2, chunk_max, ..WireModel::default() };
    let settings = PairConfig { seed: config.seed, wire, ..PairConfig::default() };
    // The argument holds the service time.
    let handler =
        |payload: &[u8], _: &mut _| Work::Result(Nanos(u64::from_le_bytes(payload.try_into().unwrap())), Vec::new());
    let (params, environment) = (Params::default(), config.environment());
    let mut pair = Pair::new(algorithm, &params, environment, settings, Box::new(handler)).unwrap();
    let clients: Vec<ClientId> = (0..config.workload.clients).map(|_| pair.connect()).collect();
    let mut services = Rng::new(config.seed, Purpose::Service);
    let mut draws = Rng::new(config.seed, Purpose::Clients);
    let warm = Time::ZERO + WARMUP;
    let mut done_before = 0;
    let good = |pair: &Pair| -> usize {
        clients.iter().flat_map(|client| pair.latencies(*client)).filter(|latency| **latency <= config.slo).count()
    };
    let mut is_warm = false;
    for (at, client) in ArrivalStream::new(&config.workload, config.seed) {
        if at > warm && !is_warm {
            pair.run_until(warm);
            (done_before, is_warm) = (good(&pair), true);
        }
        if at > Time::ZERO + DURATION {
            break;
        }
        pair.run_until(at);
        let service = config.workload.service.draw(&mut services).0.to_le_bytes();
        let priority = Priority::from_random(draws.bits());
        pair.submit_with(clients[client as usize], &service, priority, Budget::UNLIMITED);
    }
    pair.run_until(Time::ZERO + DURATION);
    assert_eq!(pair.violation(), None);
    assert_eq!(pair.counts().without_credit, 0);
    (good(&pair) - done_before) as f64 / (DURATION - WARMUP).as_secs_f64()
}

/// Accepted relative difference between the protocol and the ideal wire.
///
/// Without dependence on chance or on the first round trips, both agree to the request. Credits and
/// priorities are drawn in another order. Controllers whose clients or limits answer each rejection
/// amplify small differences: up to 8 % was seen. CoDel serves a third more over the protocol above
/// capacity, and Rajomon a fifth more; this is not explained yet, so the bound only excludes a
/// breakdown.
fn tolerance(controller: &str) -> f64 {
    match controller {
        "none" | "seda" | "window" => 0.001,
        "breakwater" | "auto" | "dagor" => 0.02,
        "codel" | "rajomon" => 0.35,
        _ => 0.09,
    }
}

#[test]
fn goodput_is_the_same_with_the_real_protocol_on_the_wire() {
    for load in [0.7, 1.3] {
        for algorithm in leeward_controllers::builtin().algorithms() {
            let config = scenario(load, 7);
            let ideal = ideal(&config, algorithm);
            let [whole, halves] = [0, 50].map(|chunk_max| real(&config, algorithm, chunk_max));
            println!(
                "{} at {load}: simulated {ideal:.0}, protocol {whole:.0}, in half frames {halves:.0}",
                algorithm.name
            );
            for found in [whole, halves] {
                let error = (found - ideal).abs() / ideal.max(1_000.0);
                assert!(error < tolerance(algorithm.name), "{} at {load}: {ideal:.0} and {found:.0}", algorithm.name);
            }
        }
    }
}
