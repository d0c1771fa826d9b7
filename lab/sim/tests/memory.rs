//! Memory is bounded by clients, not by time or load: 10,000 clients at twice the capacity take
//! less than 500 MB.

#![cfg(target_os = "linux")]

use leeward_core::units::Nanos;
use leeward_sim::config::Workload;
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

/// Resets the peak memory of this process (proc(5), `clear_refs`), so that each algorithm is
/// measured separately.
///
/// A kernel without this keeps the peak of all algorithms, which is stricter.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak memory of this process since the last reset, MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn ten_thousand_clients_fit() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 2.0);
        let config = SimConfig {
            workload: Workload { clients: 10_000, ..testbed.workload.clone() },
            warmup: Nanos::from_millis(500),
            // Without control, long enough to fill every connection: 256 requests per client.
            duration: Nanos::from_secs(if algorithm.name == "none" { 4 } else { 1 }),
            ..testbed
        };
        reset_peak();
        let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        println!("{}: {} MB, {} unfinished", algorithm.name, peak_mb(), report.totals.unfinished);
        assert!(peak_mb() < 500, "{} needed {} MB", algorithm.name, peak_mb());
    }
}
