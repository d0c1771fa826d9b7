//! Lines of the report that only HTTP services have: reasons and codes, connections, content, and
//! the classes.

use std::collections::BTreeMap;

use leeward_load::LoadReport;
use leeward_load::report::{ClassReport, RequestCounts};

use super::super::report::INDENT;
use crate::demo::format::{format_us, rate};
use crate::table::{WIDTH, wrap};

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
    text += &format!("\n{:<INDENT$}{:.1} MB received", "content", report.content_bytes as f64 / 1e6);
    for class in &report.classes {
        text += &format!("\n{}", class_line(class));
    }
    text
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
