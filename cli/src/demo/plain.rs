//! Lines on stderr instead of the live view, for files, pipes and simple terminals.

use std::io::Write;

use super::meaning;
use super::news::{Load, News, Row};
use super::words::{controller_first, span, thousands};

/// Tells of `news` what a line should be written about.
pub(crate) fn tell(news: &News) {
    if let Some(line) = line(news) {
        say(&line);
    }
}

/// A line for whoever reads.
pub(crate) fn say(line: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn line(news: &News) -> Option<String> {
    match news {
        News::Measuring(step) => Some(format!("Measuring this machine: {step} ...")),
        News::Measured(machine) if !machine.clients_apart => {
            Some("Server and clients have only one CPU: what follows means little.".into())
        }
        News::Measured(machine) if meaning::disturbed(machine) => {
            Some("Something else keeps this machine busy: what follows means little.".into())
        }
        News::Ended(row) => Some(ended(row)),
        News::Measured(_) | News::Begins(_) | News::Now(_) => None,
    }
}

fn ended(row: &Row) -> String {
    let head = format!("{}, {}", controller_first(&row.point.run.label), row.load.words());
    let tail = match (row.load, row.back_ms(0)) {
        (Load::Spike { .. }, Some(ms)) => format!("goodput back in {ms:.0} ms"),
        (Load::Spike { .. }, None) => "goodput not back while it lasts".into(),
        _ => format!("{} k/s in time, p99 {}", thousands(row.point.goodput_rps), span(row.point.p99_us)),
    };
    format!("{head}: {tail}")
}

/// Says what the whole is about, before it begins.
pub(crate) fn intro(seconds: f64) {
    say(&format!(
        "A server on one CPU, its clients on another, with and without overload control: about {seconds:.0} s."
    ));
}

/// Findings, after the demo has ended.
pub(crate) fn outro(rows: &[Row], machines: &[leeward_lab::results::Machine]) -> String {
    let slo_us = rows.first().map_or(0.0, |row| row.point.slo_us);
    let machine = machines.first().map(|machine| meaning::machine(machine, slo_us)).unwrap_or_default();
    format!("{machine}\n{}\n{}\n{}", super::table::text(rows), meaning::legend(), meaning::text(rows, machines))
}

#[cfg(test)]
mod tests {
    use super::super::table::samples;
    use super::*;

    #[test]
    fn a_run_is_a_line() {
        let lines: Vec<String> = samples::rows().iter().map(ended).collect();
        assert_eq!(lines[3], "Breakwater, demand 1x the capacity: 54.0 k/s in time, p99 250 µs");
        assert_eq!(lines[7], "Breakwater, demand 0.5x, then a spike to 1.4x: goodput back in 7 ms");
    }
}
