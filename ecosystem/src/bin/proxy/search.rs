//! Finds the best static numbers of HAProxy and nginx for one row, as a patient person would.

use crate::contender::{Contender, Numbers};
use crate::measure::{Bench, Spans};
use crate::process::Process;
use crate::sample::Row;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Numbers in flight to begin with.
const LADDER: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The numbers, and the goodput over the capacity of HAProxy and of nginx with them.
pub(crate) fn search(bench: &mut Bench, row: &Row, service: &Process, capacity: f64) -> Result<(Numbers, f64, f64)> {
    let spans = Spans { rounds: 1, warmup: Duration::from_millis(700), span: Duration::from_millis(2_200) };
    let mut best = (Numbers { maxconn: 64, queue_ms: 10, limit: 64 }, 0.0, 0.0);
    let slo = row.mode.objective().as_secs_f64() * 1e3;
    if Contender::Haproxy.program().is_some() {
        let mut trials = Trials::default();
        let first = LADDER.map(|maxconn| (maxconn, queue_time(maxconn, capacity, slo)));
        for step in 0..first.len() + REFINEMENTS.len() {
            let (maxconn, queue_ms) = trials.best();
            let (maxconn, queue_ms) = match first.get(step) {
                Some(numbers) => *numbers,
                None => REFINEMENTS[step - first.len()](maxconn, queue_ms),
            };
            if trials.0.contains_key(&(maxconn, queue_ms)) {
                continue;
            }
            let numbers = Numbers { maxconn, queue_ms, ..Numbers::default() };
            let share = bench.shot(row, Contender::Haproxy, service, capacity, numbers, spans)?.share;
            eprintln!("    haproxy {maxconn}, {queue_ms} ms: {share:.3}");
            trials.0.insert((maxconn, queue_ms), share);
        }
        (best.0.maxconn, best.0.queue_ms) = trials.best();
        best.1 = trials.0[&trials.best()];
    }
    if Contender::Nginx.program().is_some() {
        let mut trials = Trials::default();
        for step in 0..LADDER.len() + 4 {
            let limit = match LADDER.get(step) {
                Some(limit) => *limit,
                None => scaled(trials.best().0, [0.7, 1.4, 0.85, 1.2][step - LADDER.len()]),
            };
            if trials.0.contains_key(&(limit, 0)) {
                continue;
            }
            let numbers = Numbers { limit, ..Numbers::default() };
            let share = bench.shot(row, Contender::Nginx, service, capacity, numbers, spans)?.share;
            eprintln!("    nginx {limit}: {share:.3}");
            trials.0.insert((limit, 0), share);
        }
        best.0.limit = trials.best().0;
        best.2 = trials.0[&trials.best()];
    }
    Ok(best)
}

/// Goodput by the two numbers.
#[derive(Default)]
struct Trials(BTreeMap<(u64, u64), f64>);

impl Trials {
    fn best(&self) -> (u64, u64) {
        let best = self.0.iter().max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or((1, 1), |(numbers, _)| *numbers)
    }
}

/// Queue time that leaves room for so many in flight at this capacity.
fn queue_time(maxconn: u64, capacity: f64, slo: f64) -> u64 {
    let sojourn = 1e3 * maxconn as f64 / capacity;
    (0.9 * slo - sojourn).max(0.1 * slo).round() as u64
}

type Step = fn(u64, u64) -> (u64, u64);

/// Steps from the best numbers so far, each taken in turn.
const REFINEMENTS: [Step; 8] = [
    |maxconn, queue| (maxconn, scaled(queue, 0.7)),
    |maxconn, queue| (maxconn, scaled(queue, 0.5)),
    |maxconn, queue| (scaled(maxconn, 1.45), queue),
    |maxconn, queue| (scaled(maxconn, 0.7), queue),
    |maxconn, queue| (scaled(maxconn, 1.45), scaled(queue, 0.7)),
    |maxconn, queue| (scaled(maxconn, 0.75), scaled(queue, 1.2)),
    |maxconn, queue| (maxconn, scaled(queue, 1.25)),
    |maxconn, queue| (maxconn, scaled(queue, 0.8)),
];

/// A changed number: at least one, and never the same.
fn scaled(number: u64, by: f64) -> u64 {
    let scaled = (number as f64 * by).round() as u64;
    let moved = if scaled != number {
        scaled
    } else if by > 1.0 {
        number + 1
    } else {
        number.saturating_sub(1)
    };
    moved.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gets_what_the_service_leaves_of_the_objective() {
        assert_eq!(queue_time(10, 1_000.0, 50.0), 35);
        assert_eq!(queue_time(128, 1_000.0, 50.0), 5, "never nothing");
    }

    #[test]
    fn a_scaled_number_differs_where_it_can() {
        assert_eq!((scaled(1, 1.4), scaled(1, 0.7), scaled(2, 0.7), scaled(16, 1.45)), (2, 1, 1, 23));
    }

    #[test]
    fn the_best_trial_wins() {
        let trials = Trials(BTreeMap::from([((1, 40), 0.5), ((8, 30), 0.9), ((64, 5), 0.7)]));
        assert_eq!(trials.best(), (8, 30));
    }
}
