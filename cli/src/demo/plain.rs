//! Plain lines on stderr instead of the live view, for files, pipes and simple terminals.

use std::io::Write;

use super::events::{DemoEvent, Load, RunResult};
use super::explanation;
use super::format::{controller_capitalized, format_us, rate};

/// Prints a line for an event, if it needs one.
pub(crate) fn report(event: &DemoEvent) {
    if let Some(line) = line(event) {
        print_line(&line);
    }
}

/// Prints a line to stderr.
pub(crate) fn print_line(line: &str) {
    // Errors are ignored: stderr may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn line(event: &DemoEvent) -> Option<String> {
    match event {
        DemoEvent::Calibrating(step) => Some(format!("Measuring this machine: {step} ...")),
        DemoEvent::Calibrated(machine) if !machine.clients_apart => {
            Some("Server and clients share one CPU: the numbers below mean little.".into())
        }
        DemoEvent::Calibrated(machine) if explanation::is_disturbed(machine) => {
            Some("Other programs keep this machine busy: the numbers below mean little.".into())
        }
        DemoEvent::RunEnded(row) => Some(result_line(row)),
        DemoEvent::Calibrated(_) | DemoEvent::RunStarted(_) | DemoEvent::Sample(_) => None,
    }
}

fn result_line(row: &RunResult) -> String {
    let head = format!("{}, {}", controller_capitalized(&row.point.run.label), row.load.describe());
    let tail = match (row.load, row.recovery_ms(0), row.recovery_ms(1)) {
        _ if !row.is_measured() => "not measured, because the clients sent late".into(),
        (Load::Spike { .. }, Some(ms), _) => format!("goodput back in {ms:.0} ms"),
        (Load::Spike { .. }, None, Some(ms)) => format!("goodput back only after the spike, in {ms:.0} ms"),
        (Load::Spike { .. }, None, None) => "goodput does not recover".into(),
        _ => format!("{} in time, p99 {}", rate(row.point.goodput_rps), format_us(row.point.p99_us)),
    };
    format!("{head}: {tail}")
}

/// Prints an introduction before the demo.
pub(crate) fn intro(seconds: f64) {
    print_line(&format!(
        "A server on one CPU, its clients on another, with and without overload control: about {seconds:.0} s."
    ));
}

/// Text of the findings, after the demo has ended.
pub(crate) fn outro(rows: &[RunResult], machines: &[leeward_lab::results::Machine]) -> String {
    let slo_us = rows.first().map_or(0.0, |row| row.point.slo_us);
    let machine = machines.first().map(|machine| explanation::machine(machine, slo_us)).unwrap_or_default();
    format!("{machine}\n{}\n{}\n{}", super::table::text(rows), explanation::legend(), explanation::text(rows, machines))
}

#[cfg(test)]
mod tests {
    use super::super::table::samples;
    use super::*;

    #[test]
    fn prints_a_line_per_run() {
        let lines: Vec<String> = samples::rows().iter().map(result_line).collect();
        assert_eq!(lines[5], "Breakwater, demand 1x the capacity: 54.0 k/s in time, p99 250 µs");
        assert_eq!(lines[11], "Breakwater, demand 0.5x, then a spike to 1.4x: goodput back in 7 ms");
        let late = samples::late(samples::rows());
        assert_eq!(
            result_line(&late[5]),
            "Breakwater, demand 1x the capacity: not measured, because the clients sent late"
        );
    }

    #[test]
    fn a_spike_has_a_recovery_after_its_end() {
        let end = |row: &RunResult| result_line(row).rsplit(": ").next().unwrap().to_string();
        let mut row = samples::spike_row("none", false);
        assert_eq!(end(&row), "goodput does not recover");
        row.shifts[1] = samples::spike_row("none", true).shifts[1].clone();
        assert_eq!(end(&row), "goodput back only after the spike, in 7 ms");
    }
}
