//! The shortest way to compare controllers: the testbed of the Breakwater paper at several demands.
//! `cargo run --release -p leeward-sim --example compare -- breakwater none`

use leeward_control::registry::Registry;
use leeward_control::units::{Nanos, Rate};
use leeward_sim::config::{Arrivals, NetworkModel, Segment, ServerModel, Shares, SimConfig, Workload};
use leeward_sim::service::Service;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::builtin();
    let names: Vec<String> = std::env::args().skip(1).collect();
    let service = Service::Exponential(Nanos::from_micros(10));
    let server = ServerModel::default();
    let capacity = server.capacity(service.mean());
    for name in if names.is_empty() { vec!["none".into(), "breakwater".into()] } else { names } {
        let algorithm = registry.find(&name)?;
        let params = algorithm.params(&[])?;
        for ratio in [0.5, 0.9, 1.0, 1.2, 1.4, 2.0] {
            let config = SimConfig {
                server: server.clone(),
                network: NetworkModel::default(),
                workload: Workload {
                    clients: 1_000,
                    arrivals: Arrivals::Poisson,
                    shares: Shares::Equal,
                    demand: vec![Segment { from: Nanos::ZERO, rate: Rate(capacity.0 * ratio) }],
                    service: service.clone(),
                },
                slo: Nanos::from_micros(200),
                warmup: Nanos::from_millis(1_000),
                duration: Nanos::from_millis(2_000),
                window: None,
                fine_window: None,
                seed: 1,
            };
            let began = Instant::now();
            let report = leeward_sim::simulate(&config, algorithm, &params)?;
            let wall = began.elapsed().as_secs_f64();
            let per_second = |count: u64| count as f64 / report.measured.as_secs_f64() / 1e3;
            println!(
                "{name} {ratio}x: {:.0} k/s good, {:.0} k/s throughput, p99 {}, cpu {:.0} %, {:.1} % dropped, {:.1} % ended \
                 early; {:.1} M events/s, {:.2} M requests/s simulated; {:?}",
                per_second(report.counts.good),
                per_second(report.counts.completed),
                report.latency.p99,
                report.cpu_utilization * 100.0,
                report.counts.rejected as f64 / report.counts.received.max(1) as f64 * 100.0,
                report.totals.ended_at_client as f64 / report.totals.offered as f64 * 100.0,
                report.events as f64 / wall / 1e6,
                report.totals.offered as f64 / wall / 1e6,
                (
                    report.gauges.credit_pool,
                    report.gauges.credits_issued,
                    report.totals.balance(),
                    report.littles_law_holds,
                    report.idle_while_queued
                ),
            );
        }
    }
    Ok(())
}
