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

/// Where nothing has to be refused, only larger ones come into question.
const GENEROUS: [u64; 3] = [32, 64, 128];
/// So many of the best are measured a second time.
const AGAIN: usize = 3;

/// The numbers, and the goodput over the capacity of HAProxy and of nginx with them.
pub(crate) fn search(bench: &mut Bench, row: &Row, service: &Process, capacity: f64) -> Result<(Numbers, f64, f64)> {
    let slo = row.mode.objective().as_secs_f64() * 1e3;
    let ladder = if row.demand < 1.0 { &GENEROUS[..] } else { &LADDER[..] };
    let refines = row.demand > 1.0;
    let both: Vec<_> = ladder.iter().map(|limit| (*limit, queue_time(*limit, capacity, slo))).collect();
    let steps = if refines { &BOTH_STEPS[..] } else { &[] };
    let of = |(maxconn, queue_ms)| Numbers { maxconn, queue_ms, limit: 0 };
    let haproxy = climb(&both, steps, |numbers| shot(bench, row, Contender::Haproxy, service, capacity, of(numbers)))?;
    let alone: Vec<_> = ladder.iter().map(|limit| (*limit, 0)).collect();
    let steps = if refines { &LIMIT_STEPS[..] } else { &[] };
    let of = |(limit, _)| Numbers { limit, ..Numbers::default() };
    let nginx = climb(&alone, steps, |numbers| shot(bench, row, Contender::Nginx, service, capacity, of(numbers)))?;
    let ((maxconn, queue_ms), limit) = (haproxy.0, nginx.0.0);
    Ok((Numbers { maxconn, queue_ms, limit }, haproxy.1, nginx.1))
}

fn shot(
    bench: &mut Bench,
    row: &Row,
    of: Contender,
    service: &Process,
    capacity: f64,
    numbers: Numbers,
) -> Result<f64> {
    let spans = Spans { rounds: 1, warmup: Duration::from_millis(700), span: Duration::from_millis(2_200) };
    let share = bench.shot(row, of, service, capacity, numbers, spans)?.share;
    let Numbers { maxconn, queue_ms, limit } = numbers;
    let shown = if of == Contender::Nginx { format!("{limit}") } else { format!("{maxconn}, {queue_ms} ms") };
    eprintln!("    {} {shown}: {share:.3}", of.name());
    Ok(share)
}

/// Tries the first numbers, then steps from the best so far, then the best of all once more, and
/// returns the best with its goodput.
fn climb(
    first: &[(u64, u64)],
    steps: &[Step],
    mut trial: impl FnMut((u64, u64)) -> Result<f64>,
) -> Result<((u64, u64), f64)> {
    let mut trials = Trials::default();
    for numbers in first {
        trials.0.insert(*numbers, trial(*numbers)?);
    }
    for step in steps {
        let (one, other) = trials.best();
        let next = step(one, other);
        if let std::collections::btree_map::Entry::Vacant(entry) = trials.0.entry(next) {
            entry.insert(trial(next)?);
        }
    }
    // The best of many noisy ones was lucky, too.
    let mut sorted: Vec<_> = trials.0.into_iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut again = Trials::default();
    for (numbers, share) in sorted.into_iter().take(AGAIN) {
        again.0.insert(numbers, (share + trial(numbers)?) / 2.0);
    }
    let best = again.best();
    Ok((best, again.0[&best]))
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

/// Steps of both numbers, each taken in turn.
const BOTH_STEPS: [Step; 7] = [
    |maxconn, queue| (maxconn, scaled(queue, 0.7)),
    |maxconn, queue| (maxconn, scaled(queue, 0.5)),
    |maxconn, queue| (scaled(maxconn, 1.45), queue),
    |maxconn, queue| (scaled(maxconn, 0.7), queue),
    |maxconn, queue| (scaled(maxconn, 1.45), scaled(queue, 0.7)),
    |maxconn, queue| (scaled(maxconn, 0.75), scaled(queue, 1.2)),
    |maxconn, queue| (maxconn, scaled(queue, 1.25)),
];

/// Steps of a number alone.
const LIMIT_STEPS: [Step; 4] = [
    |limit, _| (scaled(limit, 0.7), 0),
    |limit, _| (scaled(limit, 1.4), 0),
    |limit, _| (scaled(limit, 0.85), 0),
    |limit, _| (scaled(limit, 1.2), 0),
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
    fn a_climb_ends_at_the_best_numbers() {
        // Best at 24 and 20 ms.
        let share = |(one, other): (u64, u64)| {
            let far = |number: u64, best: f64| (number as f64 / best).ln().abs();
            1.0 / (1.0 + far(one, 24.0) + far(other, 20.0))
        };
        let first = LADDER.map(|limit| (limit, queue_time(limit, 1_000.0, 50.0)));
        let (best, goodput) = climb(&first, &BOTH_STEPS, |numbers| Ok(share(numbers))).unwrap();
        assert!(goodput > 0.7 && (16..=32).contains(&best.0), "{best:?} {goodput}");
        let lucky = std::cell::Cell::new(0);
        let once = climb(&[(1, 0), (2, 0)], &[], |numbers| {
            lucky.set(lucky.get() + 1);
            Ok(if lucky.get() == 1 { 0.9 } else { 0.5 + 0.1 * numbers.0 as f64 })
        });
        assert_eq!(once.unwrap().0, (1, 0), "0.9 and 0.6 are more than 0.7 twice");
    }
}
