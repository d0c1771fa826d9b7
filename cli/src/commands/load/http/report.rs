//! Lines of the report that only HTTP services have: reasons and codes, connections, content, and
//! the classes.

use std::collections::BTreeMap;

use leeward_load::LoadReport;
use leeward_load::report::{ClassReport, RequestCounts};

use super::super::report::INDENT;
use crate::demo::format::{format_us, rate};
use crate::table::{WIDTH, wrap};

/// Share of requests that wait for a connection that is worth a line.
const WAITED_MIN: f64 = 0.01;

/// Formats the lines, each behind a line end.
pub(super) fn details(report: &LoadReport) -> String {
    let mut text = String::new();
    let mut add = |name: &str, counts: &BTreeMap<String, u64>| {
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            text += &format!("\n{name:<INDENT$}{}", wrap(&counts.join(", "), INDENT, WIDTH).trim());
        }
    };
    add("dropped", &report.drop_reasons);
    add("failed", &report.failures);
    if report.connections.reopened > 0 {
        text += &format!("\n{:<INDENT$}{}", "reopened connections", report.connections.reopened);
    }
    text += &full_connections(report);
    text += &format!("\n{:<INDENT$}{:.1} MB received", "content", report.content_bytes as f64 / 1e6);
    for class in &report.classes {
        text += &format!("\n{}", class_line(class));
    }
    text
}

/// Says that requests waited for connections, so that the service was not offered the demand. Where
/// connections were lost or opened again, their number may not be the cause.
fn full_connections(report: &LoadReport) -> String {
    let (waited, offered) = (report.connections.waited_for, report.totals.offered);
    if !report.adherence.kept || waited as f64 <= WAITED_MIN * offered as f64 {
        return String::new();
    }
    let mut text = format!(
        "{waited} of {offered} requests waited here too long for one of {}, so the service did not get all of the \
         demand",
        report.connections.opened,
    );
    if report.connections.reopened == 0 && report.connections.lost == 0 {
        text += ". Its capacity may be higher: set more --clients";
    }
    format!("\n{:<INDENT$}{}", "connections", wrap(&text, INDENT, WIDTH).trim())
}

fn class_line(class: &ClassReport) -> String {
    let us = |span: leeward_core::units::Nanos| format_us(span.as_micros_f64());
    format!(
        "{:<INDENT$}goodput {}, p50 {}, p99 {}, {:.1} % dropped",
        format!("class {}", class.name),
        rate(class.goodput_per_s),
        us(class.latency.p50),
        us(class.latency.p99),
        100.0 * dropped_share(&class.measured),
    )
}

/// Share of the requests that the server rejected, of those that ended.
fn dropped_share(counts: &RequestCounts) -> f64 {
    counts.dropped as f64 / counts.total().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::{Nanos, Time};
    use leeward_load::report::RunEndReason;
    use leeward_load::{Recorder, RecorderConfig, RunEnd};

    /// Report on 1,000 requests, of which `waited` waited for a connection.
    fn report(waited: u64) -> String {
        let slo = Nanos::from_millis(200);
        let mut recorder = Recorder::new(&RecorderConfig {
            slo,
            timeout: None,
            late_after: slo,
            warmup: Nanos::ZERO,
            duration: Nanos::from_secs(1),
            window: None,
            fine_window: None,
        });
        (0..1_000).for_each(|number| recorder.record_issue(Time(number * 1_000_000), Time(number * 1_000_000)));
        (0..waited).for_each(|_| recorder.record_wait_for_connection());
        details(&recorder.finish(&RunEnd { ending: RunEndReason::Finished, planned: 1_000 }).report)
    }

    #[test]
    fn connections_that_were_too_few_are_named() {
        let text = report(400);
        assert!(text.contains("400 of 1000 requests") && text.contains("--clients"), "{text}");
        assert!(!report(10).contains("--clients"));
    }
}
