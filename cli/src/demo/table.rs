//! Table of the results, final or partial: one row per run, in words and signs that need no colour.

use super::events::{Load, RunResult};
use super::format::{controller_short, format_us, multiple, percent, thousands};
use crate::table::{Align, Table};

/// Headings of [`steady`].
pub(crate) const STEADY: [&str; 8] =
    ["demand", "control", "k/s in time", "capacity", "p99", "in time?", "rejected", "expired"];
/// Headings of [`spike`].
pub(crate) const SPIKE: [&str; 6] =
    ["spike", "control", "k/s in time", "goodput back after", "after its end", "highest p99"];

/// Row of a run with steady demand.
pub(crate) fn steady(row: &RunResult) -> Option<[String; 8]> {
    let Load::Steady(ratio) = row.load else { return None };
    let point = &row.point;
    Some([
        multiple(ratio),
        controller_short(&point.run.label).into(),
        thousands(point.goodput_rps),
        percent(row.capacity_share()),
        if point.p99_us > 0.0 { format_us(point.p99_us) } else { "–".into() },
        match row.is_in_time() {
            Some(true) => "✓ yes".into(),
            Some(false) => "✗ NO".into(),
            None => "unknown".into(),
        },
        percent(point.drop_rate),
        percent(point.expiry_rate),
    ])
}

/// Row of a run with a spike; its goodput is the settled value during the spike.
pub(crate) fn spike(row: &RunResult) -> Option<[String; 6]> {
    let Load::Spike { peak, .. } = row.load else { return None };
    let highest = row.shifts.iter().map(|shift| shift.p99_peak_us).fold(0.0, f64::max);
    Some([
        multiple(peak),
        controller_short(&row.point.run.label).into(),
        row.shifts.first().map_or("–".into(), |shift| thousands(shift.settled_goodput_rps)),
        row.describe_recovery(0),
        row.describe_recovery(1),
        format_us(highest),
    ])
}

/// Both tables, for a terminal of 80 columns.
pub(crate) fn text(rows: &[RunResult]) -> String {
    let of_steady: Vec<Vec<String>> = rows.iter().filter_map(steady).map(Vec::from).collect();
    let of_spike: Vec<Vec<String>> = rows.iter().filter_map(spike).map(Vec::from).collect();
    let parts = [render(&STEADY, of_steady), render(&SPIKE, of_spike)];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn render(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let align = |index: usize| if index == 1 { Align::Left } else { Align::Right };
    let columns: Vec<(&str, Align)> =
        headings.iter().enumerate().map(|(index, heading)| (*heading, align(index))).collect();
    let mut table = Table::new(&columns);
    rows.into_iter().for_each(|row| table.row(row));
    table.to_string()
}

#[cfg(test)]
pub(crate) mod samples {
    //! Example rows of a demo.

    use super::*;
    use leeward_lab::results::{PointRow, RunKey, ShiftRow, WorkloadKey};

    /// A run with steady demand.
    pub(crate) fn steady_row(label: &str, ratio: f64, goodput: f64, p99_us: f64) -> RunResult {
        let point = PointRow {
            run: RunKey::new(label, label, 1),
            workload: WorkloadKey { demand_ratio: ratio, ..WorkloadKey::default() },
            capacity_rps: 60e3,
            slo_us: 300.0,
            goodput_rps: goodput,
            predicted_goodput_rps: Some(goodput * 1.05),
            p99_us,
            drop_rate: 0.012,
            ..PointRow::default()
        };
        RunResult::from_point(&point, &[])
    }

    /// A run with a spike.
    pub(crate) fn spike_row(label: &str, recovered: bool) -> RunResult {
        let point =
            PointRow { run: RunKey::new(label, label, 1), capacity_rps: 60e3, slo_us: 300.0, ..PointRow::default() };
        let shift = ShiftRow {
            from_rps: 30e3,
            to_rps: 84e3,
            settled_goodput_rps: if recovered { 55e3 } else { 0.0 },
            recovery_ms: if recovered { 7.0 } else { 2000.0 },
            reached_ms: if recovered { 7.0 } else { 2000.0 },
            recovered,
            p99_peak_us: if recovered { 280.0 } else { 780e3 },
            ..ShiftRow::default()
        };
        let after = ShiftRow { from_rps: 84e3, to_rps: 30e3, ..shift.clone() };
        RunResult::from_point(&point, &[shift, after])
    }

    /// The same runs with late clients.
    pub(crate) fn late(mut rows: Vec<RunResult>) -> Vec<RunResult> {
        rows.iter_mut().for_each(|row| row.point.late_us = Some(25e3));
        rows
    }

    /// All rows of a demo.
    pub(crate) fn rows() -> Vec<RunResult> {
        vec![
            steady_row("none", 0.5, 30e3, 85.0),
            steady_row("auto", 0.5, 30e3, 85.0),
            steady_row("breakwater", 0.5, 30e3, 86.0),
            steady_row("none", 1.0, 20e3, 30e3),
            steady_row("auto", 1.0, 53e3, 240.0),
            steady_row("breakwater", 1.0, 54e3, 250.0),
            steady_row("none", 2.0, 0.0, 1.9e6),
            steady_row("auto", 2.0, 55e3, 280.0),
            steady_row("breakwater", 2.0, 56e3, 290.0),
            spike_row("none", false),
            spike_row("auto", true),
            spike_row("breakwater", true),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_says_whether_its_run_met_the_objective() {
        let text = text(&samples::rows());
        assert_eq!(text.matches("✓ yes").count(), 7, "{text}");
        assert_eq!(text.matches("✗ NO").count(), 2, "{text}");
        for part in ["no control", "auto", "Breakwater", "never", "7 ms", "1.90 s", "93 %"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_run_with_late_clients_has_no_verdict() {
        let text = text(&samples::late(samples::rows()));
        assert!(!text.contains("yes") && !text.contains("NO") && !text.contains("never"), "{text}");
        assert_eq!(text.matches("unknown").count(), 9 + 2 * 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn no_rows_make_no_table() {
        assert_eq!(text(&[]), "");
    }
}
