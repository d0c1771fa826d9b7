//! How each controller answers the situations that matter, as small tables under `snapshots/`: a change of behaviour
//! shows as a diff. Rounded on purpose: they are about shapes, not digits. `LEEWARD_UPDATE_SNAPSHOTS=1 cargo test -p
//! leeward-sim --test snapshots` writes them anew.

use leeward_control::registry::Registry;
use leeward_control::units::{Nanos, Rate};
use leeward_sim::config::{Segment, SimConfig, Workload};
use leeward_sim::{RunOutcome, service::Service, simulate};
use std::fmt::Write as _;
use std::path::Path;

/// Checks a situation: demand as (from ms, multiple of capacity).
fn check(name: &str, demand: &[(u64, f64)], duration_ms: u64) {
    let mut table = format!("{name}: demand {demand:?} (ms, multiple of capacity)\n");
    for algorithm in Registry::builtin().algorithms() {
        let testbed = SimConfig::testbed(Service::Exponential(Nanos::from_micros(10)), 1.0);
        let capacity = testbed.workload.demand[0].rate.0;
        let segment =
            |(from, ratio): &(u64, f64)| Segment { from: Nanos::from_millis(*from), rate: Rate(capacity * ratio) };
        let config = SimConfig {
            workload: Workload { demand: demand.iter().map(segment).collect(), ..testbed.workload.clone() },
            warmup: Nanos::ZERO,
            duration: Nanos::from_millis(duration_ms),
            window: Some(Nanos::from_millis(duration_ms / 10)),
            ..testbed
        };
        let report = simulate(&config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        write_rows(&mut table, algorithm.name, &report);
    }
    compare(name, &table);
}

/// One row per quantity, one column per window.
fn write_rows(table: &mut String, name: &str, report: &RunOutcome) {
    let mut row = |quantity: &str, values: Vec<f64>| {
        write!(table, "{name:>10} {quantity:<14}").unwrap();
        for value in values {
            write!(table, " {:>6}", rounded(value)).unwrap();
        }
        table.push('\n');
    };
    let per_ms = |count: u64, length: Nanos| count as f64 / (length.0 as f64 / 1e6);
    row("goodput k/s", report.windows.iter().map(|window| per_ms(window.clients.counts.good, window.length)).collect());
    row("p99 us", report.windows.iter().map(|window| window.clients.latency.p99.as_micros_f64()).collect());
    row(
        "drops k/s",
        report.windows.iter().map(|window| per_ms(window.clients.counts.dropped, window.length)).collect(),
    );
}

/// Two significant digits.
fn rounded(value: f64) -> String {
    if value < 1.0 {
        return "0".into();
    }
    let mut scale = 1.0;
    while value / scale >= 100.0 {
        scale *= 10.0;
    }
    format!("{:.0}", (value / scale).round() * scale)
}

#[allow(clippy::disallowed_methods)] // the test's own switch
fn compare(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var("LEEWARD_UPDATE_SNAPSHOTS").is_ok() {
        std::fs::write(&path, table).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == table, "{} differs. It is now:\n{table}", path.display());
}

#[test]
fn step_overload() {
    check("step-overload", &[(0, 0.5), (100, 1.4)], 300);
}

#[test]
fn flash_crowd() {
    check("flash-crowd", &[(0, 0.5), (100, 3.0), (150, 0.5)], 400);
}

#[test]
fn slow_start() {
    check("slow-start", &[(0, 0.0), (100, 0.3), (200, 0.6), (300, 0.9)], 400);
}

#[test]
fn idle() {
    check("idle", &[(0, 0.001)], 400);
}

#[test]
fn lock_out() {
    check("lock-out", &[(0, 2.0), (200, 0.5)], 1_000);
}
