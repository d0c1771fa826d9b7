//! Behaviour of each controller in characteristic situations, as small tables under `snapshots/`: a
//! change of behaviour shows as a diff.
//!
//! Values are rounded on purpose: the tables show shapes, not digits. `INSTA_UPDATE=always cargo
//! test -p leeward-sim --test suite snapshots` writes them anew.

use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Segment, SimConfig, Workload};
use leeward_sim::{RunOutcome, service_time::ServiceTime, simulate};
use std::fmt::Write as _;

/// Checks a situation with a demand of pairs (from ms, multiple of capacity).
fn check(name: &str, demand: &[(u64, f64)], duration_ms: u64) {
    let mut table = format!("{name}: demand {demand:?} (ms, multiple of capacity)\n");
    for algorithm in leeward_controllers::builtin().algorithms() {
        let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
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

/// Writes one row per quantity, one column per window.
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

/// Rounds to two significant digits.
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

fn compare(name: &str, table: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, table));
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
