//! A short comparison of controllers: the testbed of the Breakwater paper at several demands.
//! `cargo run --release -p leeward-sim --example compare -- breakwater none`

use leeward_core::units::Nanos;
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = leeward_controllers::builtin();
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = vec!["none".into(), "breakwater".into()];
    }
    for name in names {
        let algorithm = registry.find(&name)?;
        let params = algorithm.params(&[])?;
        for demand in [0.5, 0.9, 1.0, 1.2, 1.4, 2.0] {
            let config = SimConfig {
                warmup: Nanos::from_secs(1),
                duration: Nanos::from_secs(2),
                ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
            };
            let report = simulate(&config, algorithm, &params)?;
            let thousands = |count: u64| count as f64 / report.measured.as_secs_f64() / 1e3;
            println!(
                "{name} at {demand}x: {:.0} k/s in time of {:.0} k/s, p99 {}, CPU {:.0} %, {:.1} % dropped",
                thousands(report.counts.good),
                thousands(report.counts.completed),
                report.latency.p99,
                report.cpu_utilization * 100.0,
                report.server.rejected as f64 / report.server.received.max(1) as f64 * 100.0,
            );
        }
    }
    Ok(())
}
