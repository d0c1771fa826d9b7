//! A graph of 1,000 servers and 100,000 clients under Breakwater with reservations, run twice for
//! the same seed.
//!
//! Prints events per second of wall time and the peak memory of the process. Fails if the runs
//! differ. `cargo run --release -p leeward-sim --example graph_scale`

use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{NetworkModel, Segment};
use leeward_sim::graph::model::{
    CallModel, CallOrder, CallPolicy, DownstreamReports, Graph, ServiceModel, StartCondition,
};
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};
use std::sync::Arc;

/// Name, mean CPU time in µs, and callees with their shares.
type Row = (&'static str, u64, &'static [(usize, f64)]);

/// Ten services of 100 servers.
const SERVICES: [Row; 10] = [
    ("gateway", 8, &[(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.3)]),
    ("home", 12, &[(5, 1.0), (8, 0.5)]),
    ("search", 15, &[(5, 1.0), (6, 0.5)]),
    ("cart", 12, &[(6, 1.0), (7, 1.0)]),
    ("account", 10, &[(8, 1.0)]),
    ("catalogue", 15, &[(9, 0.5)]),
    ("price", 10, &[]),
    ("stock", 10, &[(9, 0.5)]),
    ("profile", 10, &[(9, 0.5)]),
    ("store", 20, &[]),
];

fn graph() -> Graph {
    let service = |(name, mean, _): &Row| ServiceModel {
        name: (*name).into(),
        servers: 100,
        cores: 2,
        service: ServiceTime::Exponential(Nanos::from_micros(*mean)),
        resume: Nanos::from_micros(1),
        receive: Nanos(750),
        send: Nanos(765),
        rtt: Nanos::from_micros(100),
    };
    let calls = SERVICES.iter().enumerate().flat_map(|(from, (_, _, asks))| {
        asks.iter().map(move |(to, probability)| CallModel {
            from,
            to: *to,
            times: 1,
            probability: *probability,
            order: CallOrder::Parallel,
        })
    });
    let passing =
        CallPolicy { start: StartCondition::Reserved, downstream: DownstreamReports::On, ..CallPolicy::default() };
    Graph { services: SERVICES.iter().map(service).collect(), calls: calls.collect(), policy: passing }
}

/// Peak memory of this process as text, from Linux.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "not known".into(), |line| line.trim().into())
}

#[expect(clippy::disallowed_methods, reason = "an example measures wall time")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = graph();
    let rate = Rate(graph.capacity().0 * 0.8);
    let testbed = SimConfig::testbed(ServiceTime::Constant(Nanos::from_micros(8)), 1.0);
    let mut config = SimConfig {
        graph: Some(Arc::new(graph)),
        network: NetworkModel { rtt: Nanos::from_micros(100), jitter: Nanos::ZERO },
        slo: Nanos::from_millis(2),
        warmup: Nanos::from_millis(50),
        duration: Nanos::from_millis(150),
        ..testbed
    };
    config.workload.clients = 100_000;
    config.workload.demand = vec![Segment { from: Nanos::ZERO, rate }];
    let algorithm = leeward_controllers::builtin().find("breakwater")?.clone();
    let params = algorithm.params(&[("alpha", RawParam::Number(0.03))])?;
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        let outcome = simulate(&config, &algorithm, &params)?;
        let seconds = begun.elapsed().as_secs_f64();
        let events = outcome.events.unwrap_or(0);
        println!("{events} events in {seconds:.2} s: {:.0} per second", events as f64 / seconds);
        println!("{} requests offered, {} in time, {:?}", outcome.counts.offered, outcome.counts.good, outcome.latency);
        outcomes.push(outcome);
    }
    println!("most memory: {}", peak_memory());
    if outcomes[0] != outcomes[1] {
        return Err("two runs of one seed differ".into());
    }
    println!("both runs are the same");
    Ok(())
}
