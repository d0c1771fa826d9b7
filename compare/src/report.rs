//! The table for the terminal, and the numbers as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::outcome::{Outcome, Turns, Verdict};
use crate::statistics::Spread;

/// Share of idle time below which the load may have been the limit.
const LOAD_BOUND: f64 = 0.02;
/// Share of CPU time below which other programs disturbed the load.
const DISTURBED: f64 = 0.97;
/// Share of late requests above which an open loop did not offer the intended load.
const LATE: f64 = 0.01;

/// CPUs of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Machine {
    /// CPUs that this program may use.
    pub(crate) cpus: usize,
    /// CPU of the servers.
    pub(crate) server_cpu: usize,
    /// CPU of the load.
    pub(crate) load_cpu: usize,
}

impl Machine {
    /// Warning if server and load share a CPU, which makes the numbers meaningless.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        (self.server_cpu == self.load_cpu).then_some(
            "warning: server and load share one CPU, and both never sleep: these numbers mean little. Two CPUs are needed.",
        )
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    machine: &'a Machine,
    cases: &'a [Outcome],
}

/// Checks before the measurements that `path` can be written.
///
/// # Errors
/// The file or its folder can't be created.
pub(crate) fn prepare(path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::File::options().append(true).create(true).open(path).with_context(|| path.display().to_string())?;
    Ok(())
}

/// Writes all numbers as JSON.
///
/// # Errors
/// The file can't be written.
pub(crate) fn write(path: &Path, machine: &Machine, cases: &[Outcome]) -> Result<()> {
    let mut text = serde_json::to_string_pretty(&Whole { machine, cases })?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    println!("Every round's numbers: {}", path.display());
    Ok(())
}

/// Prints the tables.
pub(crate) fn print(machine: &Machine, outcomes: &[Outcome], quick: bool) {
    print!("{}", text(machine, outcomes, quick));
}

fn text(machine: &Machine, outcomes: &[Outcome], quick: bool) -> String {
    let mut text = format!("Server on CPU {}, load on CPU {}.", machine.server_cpu, machine.load_cpu);
    if quick {
        text += " Quick: too short to believe.";
    }
    text += "\n\n";
    let mut verdicts = vec![row(["case", "leeward's", "asked", "got", "spread", "verdict"])];
    let mut details = vec![row(["case", "contender", "per second", "p50 us", "p99 us", "server CPU", "load idle", ""])];
    for outcome in outcomes {
        for verdict in &outcome.verdicts {
            verdicts.push(verdict_row(outcome.case, verdict));
        }
        for turns in &outcome.contenders {
            details.push(detail_row(outcome.case, turns));
        }
    }
    text += &columns(&verdicts);
    text += "\nasked, got: how many times the other's figure of the same round; got is the median of the rounds, spread the\n\
             smallest and the largest.\n\n";
    text += &columns(&details);
    text += "\nMedians of the rounds. server CPU: share of its CPU that the server used; one that spins uses all of it.\n\
             load idle: share of the time in which the load had nothing to do. LOAD-BOUND: next to none, so the load may\n\
             have been the limit, and a faster server would not show. LATE: the load issued more than 1 % of its requests\n\
             late. DISTURBED: other programs took the load's CPU. dropped: rejected by the server. expired: ended at the\n\
             client, unsent.\n";
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).into()
}

fn verdict_row(case: &str, verdict: &Verdict) -> Vec<String> {
    let Spread { median, least, most } = verdict.ratio;
    let label = match verdict.met {
        true => "met",
        false if median.is_nan() => "not measured",
        false => "MISSED",
    };
    vec![
        case.into(),
        verdict.what.into(),
        verdict.asked.clone(),
        format!("{median:.3} x"),
        format!("{least:.3} .. {most:.3}"),
        label.into(),
    ]
}

fn detail_row(case: &str, turns: &Turns) -> Vec<String> {
    if let Some(reason) = &turns.missing {
        return row([case, turns.name, "", "", "", "", "", reason]);
    }
    let median = |of: &dyn Fn(usize) -> Option<f64>| {
        let values: Option<Vec<f64>> = (0..turns.rounds.len()).map(of).collect();
        values.map(|values| Spread::of(values).median)
    };
    let rounds = &turns.rounds;
    let idle = median(&|round| rounds[round].load_idle);
    let load_cpu = median(&|round| Some(rounds[round].load_cpu)).unwrap_or(f64::NAN);
    let mut notes: Vec<String> = Vec::new();
    if idle.is_some_and(|idle| idle < LOAD_BOUND) {
        notes.push("LOAD-BOUND".into());
    }
    if median(&|round| rounds[round].load_late).is_some_and(|late| late > LATE) {
        notes.push("LATE".into());
    }
    if load_cpu < DISTURBED {
        notes.push("DISTURBED".into());
    }
    let lost =
        [("dropped", median(&|round| rounds[round].dropped)), ("expired", median(&|round| rounds[round].expired))];
    for (word, share) in lost {
        if let Some(share) = share.filter(|share| *share > 0.0) {
            notes.push(format!("{:.2} % {word}", share * 100.0));
        }
    }
    let us = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.2}"));
    let percent = |value: Option<f64>| value.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
    vec![
        case.into(),
        turns.name.into(),
        format!("{:.0}", median(&|round| Some(rounds[round].rate_per_s)).unwrap_or(f64::NAN)),
        us(median(&|round| rounds[round].p50_us)),
        us(median(&|round| rounds[round].p99_us)),
        percent(median(&|round| Some(rounds[round].server_cpu))),
        percent(idle),
        notes.join(", "),
    ]
}

/// Aligns cells in columns, two spaces apart.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [row(["a", "bb", ""]), row(["ccc", "d", "e"])];
        assert_eq!(columns(&rows), "a    bb\nccc  d   e\n");
    }

    #[test]
    fn one_cpu_is_warned_of() {
        assert!(Machine { cpus: 1, server_cpu: 0, load_cpu: 0 }.warning().is_some());
        assert!(Machine { cpus: 2, server_cpu: 0, load_cpu: 1 }.warning().is_none());
    }
}
