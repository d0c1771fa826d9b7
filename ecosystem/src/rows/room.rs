//! The wait queue at 50 us of work, where a rejection costs a good part of a request.
//!
//! Twice the capacity, with and without the queue alternating: with equal requests, with three
//! classes (the highest has a fifth), and with a quarter of the clients on a shorter deadline.

use super::{Bench, Goodput, SLO, median};
use crate::guard::Guard;
use crate::load::{Demand, Group, LoadResult, alike};
use anyhow::{Context, Result};

/// Work of a request, in us.
const WORK: u64 = 50;
/// Deadline of the clients with the shorter one, in us.
const HASTY: u64 = 6_000;

const GUARDS: [Guard; 4] = [Guard::Lateness, Guard::LatenessRoom, Guard::Level, Guard::LevelRoom];

/// Share of a group's requests that were answered within `within` microseconds.
fn in_time(group: &Group, within: u64) -> f64 {
    group.latency.count_between(0, within) as f64 / group.due.max(1) as f64
}

/// Responses in time per second of the server's CPU time, which other work on the machine affects
/// less.
fn per_cpu(result: &LoadResult, report: &serde_json::Value) -> Result<f64> {
    let cpu = report["cpu"].as_f64().context("the server says no `cpu`")?;
    Ok(result.halves.iter().sum::<u64>() as f64 / cpu.max(1e-3))
}

impl Bench {
    pub(super) fn room(&mut self) -> Result<()> {
        let (closed, report) =
            self.load(Guard::Nothing, (WORK, 0), vec![(Demand::Closed, self.span)], self.span / 4, alike)?;
        let capacity = closed.per_second(closed.all().answered);
        let of_cpu = per_cpu(&closed, &report)?;
        println!("\n{WORK} us of work: {capacity:.0} per second in a closed loop, {of_cpu:.0} per second of its CPU");
        let classes = |index: usize| {
            let (priority, group) = [(1, 0), (49, 1), (113, 2)][[0, 0, 1, 1, 1, 2, 2, 2, 2, 2][index % 10]];
            (format!("leeward: p={priority}\r\n"), group)
        };
        let hasty = |index: usize| match index % 4 {
            0 => (format!("leeward: b={HASTY}\r\n"), 1),
            _ => (String::new(), 0),
        };
        let kinds: [fn(usize) -> (String, usize); 3] = [alike, classes, hasty];
        let mut runs: [[Vec<LoadResult>; 3]; 4] = Default::default();
        let mut cpus: [Vec<f64>; 4] = Default::default();
        for _ in 0..self.rounds {
            for (kind, at) in kinds.into_iter().zip(0..) {
                for ((guard, results), cpus) in GUARDS.into_iter().zip(&mut runs).zip(&mut cpus) {
                    let phases = vec![(Demand::Rate(capacity * 2.0), self.span)];
                    let (result, report) = self.load(guard, (WORK, 0), phases, self.span / 3, kind)?;
                    if at == 0 {
                        cpus.push(per_cpu(&result, &report)? / of_cpu);
                    }
                    results[at].push(result);
                }
            }
        }
        for ((guard, [plain, classes, hasty]), cpus) in GUARDS.into_iter().zip(&runs).zip(cpus) {
            let results: Vec<_> = plain.iter().map(|result| Goodput::of(result, capacity)).collect();
            let Goodput { share, p50, p99, refused } = Goodput::median(&results);
            let bar = match guard {
                Guard::LatenessRoom => Some(0.95),
                Guard::LevelRoom => Some(0.92),
                _ => None,
            };
            let in_half = guard != Guard::LevelRoom || p50 <= SLO.as_secs_f64() * 500.0;
            self.row(
                format!("{WORK}+0: in time / capacity at 2 x, {}", super::name(guard)),
                &bar.map(|bar| format!(">= {bar}")).unwrap_or_default(),
                format!(
                    "{share:.2} ({:.2} of its CPU's), p50 {p50:.1} p99 {p99:.1} ms, {:.0} % refused",
                    median(cpus),
                    refused * 100.0
                ),
                share,
                bar.map(|bar| share >= bar && in_half),
            );
            let of = |of: fn(&LoadResult) -> f64, runs: &[LoadResult]| median(runs.iter().map(of).collect());
            let highest = |at: f64| {
                median(classes.iter().map(|run| run.groups[0].latency.value_at_quantile(at) as f64 / 1e3).collect())
            };
            let refused = of(|result| result.groups[0].refused as f64 / result.groups[0].due.max(1) as f64, classes);
            self.row(
                format!("{WORK}+0: p99 of the highest of 3 classes at 2 x, {}", super::name(guard)),
                "",
                format!("{:.1} ms, p50 {:.1} ms, {:.2} % refused", highest(0.99), highest(0.5), refused * 100.0),
                highest(0.99),
                None,
            );
            let (short, long) = (
                of(|result| in_time(&result.groups[1], HASTY), hasty),
                of(|result| in_time(&result.groups[0], SLO.as_micros() as u64), hasty),
            );
            self.row(
                format!("{WORK}+0: in time of those with 6 ms among 20 at 2 x, {}", super::name(guard)),
                "",
                format!("{short:.2} of them, {long:.2} of the others"),
                short,
                None,
            );
        }
        Ok(())
    }
}
