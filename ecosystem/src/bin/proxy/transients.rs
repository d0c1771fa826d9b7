//! Changes of demand: a cold start, the end of an overload, random steps.

use crate::contender::{Contender, Numbers};
use crate::line::{Bar, Line, median};
use crate::measure::{Bench, kinds, settle};
use crate::plan::{Demand, Plan, TICK, Tick};
use crate::process::Process;
use crate::sample::{Mode, Row, Service};
use crate::tuned::Tuned;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

/// Ticks in half a second and in one.
const HALF: usize = 5;
const SECOND: usize = 10;
/// Overload, and what follows it.
const OVERLOAD: Duration = Duration::from_secs(7);
const CALM: Duration = Duration::from_secs(4);

/// Numbers of the row whose service these parts use.
pub(crate) fn numbers(tuned: &Tuned) -> Numbers {
    let row = Row::new(Service::Go, Mode::Cpu, 2.0);
    tuned.get(&row.name()).unwrap_or(Numbers { maxconn: 4, queue_ms: 30, limit: 24 })
}

/// Contenders for comparison.
const BESIDE: [Contender; 4] = [Contender::Ours, Contender::Haproxy, Contender::Nginx, Contender::Envoy];

/// From a cold proxy at 2 x to its usual goodput, and from there back to no rejections.
pub(crate) fn cold(bench: &mut Bench, tuned: &Tuned) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start(Service::Go, Mode::Cpu, &bench.folder)?;
    let capacity = bench.capacity(&service, Mode::Cpu)?;
    let phases = vec![(Demand::Rate(2.0 * capacity), OVERLOAD), (Demand::Rate(0.5 * capacity), CALM)];
    let mut all = BESIDE.map(|of| (of, of.program().map(|_| (Vec::new(), Vec::new()))));
    for round in 1..=bench.spans.rounds {
        for (of, times) in &mut all {
            let Some((cold, calm)) = times else { continue };
            let (ticks, _) = bench.quietly(|bench| run(bench, &service, *of, numbers(tuned), phases.clone()))?;
            let usual = until_usual(&ticks[..ticks.len().min(TICKS)]);
            let last = last_rejection(&ticks, TICKS);
            eprintln!("    round {round}, {}: {usual:.1} s until usual, last rejection {last:.1} s after", of.name());
            cold.push(usual);
            calm.push(last);
        }
    }
    let times = all.map(|(of, times)| (of, times.map(|(cold, calm)| (median(cold), median(calm)))));
    let lines = [("cold start at 2 x: until 0.95 of its usual goodput", 0), ("after 2 x, at 0.5 x: last rejection", 1)]
        .map(|(title, which)| {
            let pick = |times: &Option<(f64, f64)>| times.map(|times| if which == 0 { times.0 } else { times.1 });
            let beside = list(&times, |times| pick(&Some(*times)).map_or(String::new(), |time| format!("{time:.1} s")));
            Line::new(title.into(), Bar::AtMost(1.0), pick(&times[0].1), |time| format!("{time:.1} s")).beside(beside)
        });
    let raw = times.iter().map(|(of, times)| (of.name().to_owned(), json!(times))).collect::<serde_json::Map<_, _>>();
    Ok((lines.to_vec(), json!(raw)))
}

/// Rivals' numbers in a row, ours left out.
pub(crate) fn list<T>(all: &[(Contender, Option<T>)], show: impl Fn(&T) -> String) -> String {
    let shown = |(of, value): &(Contender, Option<T>)| {
        format!("{} {}", of.name(), value.as_ref().map_or("not installed".into(), &show))
    };
    all.iter().filter(|(of, _)| *of != Contender::Ours).map(shown).collect::<Vec<_>>().join(", ")
}

/// Ticks of the overload.
const TICKS: usize = (OVERLOAD.as_millis() / TICK.as_millis()) as usize;

/// Loads a fresh proxy with these demands.
fn run(
    bench: &mut Bench,
    service: &Process,
    of: Contender,
    numbers: Numbers,
    phases: Vec<(Demand, Duration)>,
) -> Result<Vec<Tick>> {
    settle(service, Mode::Cpu)?;
    let objective = Mode::Cpu.objective();
    let front = of.start(&bench.setup(service.address, objective, numbers))?;
    let seed = bench.next_seed();
    let kinds = kinds(Mode::Cpu);
    let plan =
        Plan { address: front.address, phases, warmup: Duration::ZERO, objective, seed, kinds, to_first_byte: false };
    Ok(bench.load(&plan)?.ticks)
}

/// Seconds from the beginning of an overload until half a second has 0.95 of what the second half
/// has in the mean.
fn until_usual(ticks: &[Tick]) -> f64 {
    let goodput =
        |ticks: &[Tick]| ticks.iter().map(|tick| tick.in_time).sum::<u64>() as f64 / ticks.len().max(1) as f64;
    let usual = goodput(&ticks[ticks.len() / 2..]);
    let reached = ticks.windows(HALF).position(|half| usual > 0.0 && goodput(half) >= 0.95 * usual);
    reached.unwrap_or(ticks.len()) as f64 * TICK.as_secs_f64()
}

/// Seconds from a tick on until the end of the last one with a rejection.
fn last_rejection(ticks: &[Tick], from: usize) -> f64 {
    let after = ticks.get(from..).unwrap_or_default();
    after.iter().rposition(|tick| tick.unserved > 0).map_or(0, |last| last + 1) as f64 * TICK.as_secs_f64()
}

/// Random steps of the demand: seconds in which a service that could answer answers nearly nothing.
pub(crate) fn steps(bench: &mut Bench, tuned: &Tuned, minutes: f64) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start(Service::Go, Mode::Cpu, &bench.folder)?;
    let capacity = bench.capacity(&service, Mode::Cpu)?;
    let mut all = Vec::new();
    for of in BESIDE {
        if of.program().is_none() {
            all.push((of, None));
            continue;
        }
        // Rivals are shown for a minute.
        let minutes = if of == Contender::Ours { minutes } else { minutes.min(1.0) };
        eprintln!("    {}: {minutes:.1} minutes of random steps", of.name());
        let phases = random_steps(1, capacity, Duration::from_secs_f64(minutes * 60.0));
        let ticks = run(bench, &service, of, numbers(tuned), phases)?;
        all.push((of, Some(locked_out(&ticks, capacity))));
    }
    let show = |(seconds, share): &(usize, f64)| format!("{seconds} ({share:.2} of what could be)");
    let ours = all[0].1;
    let line = Line::new(
        format!("{minutes} minutes of random steps: locked-out seconds"),
        Bar::AtMost(0.0),
        ours.map(|(seconds, _)| seconds as f64),
        |seconds| format!("{seconds:.0}"),
    );
    let more = ours.map_or(String::new(), |(_, share)| format!(" ({share:.2} of what could be)"));
    let raw = all.iter().map(|(of, result)| (of.name().to_owned(), json!(result))).collect::<serde_json::Map<_, _>>();
    Ok((vec![line.with(&more).beside(list(&all, show))], json!(raw)))
}

/// Demands from 0.1 to 4 x, each for half a second to four.
fn random_steps(seed: u64, capacity: f64, span: Duration) -> Vec<(Demand, Duration)> {
    let (mut phases, mut left, mut random) = (Vec::new(), span, seed | 1);
    let mut unit = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    while !left.is_zero() {
        let (demand, seconds) = (0.1 * 40f64.powf(unit()), 0.5 + 3.5 * unit());
        let span = Duration::from_secs_f64(seconds).min(left);
        phases.push((Demand::Rate(demand * capacity), span));
        left -= span;
    }
    phases
}

/// Seconds with a tenth or less of what could be answered in time, where at least three tenths of
/// the capacity were asked; and the share of what could be answered, in all.
fn locked_out(ticks: &[Tick], capacity: f64) -> (usize, f64) {
    let (mut seconds, mut got, mut could) = (0, 0.0, 0.0);
    for second in ticks.chunks_exact(SECOND) {
        let due = second.iter().map(|tick| tick.due).sum::<u64>() as f64;
        let in_time = second.iter().map(|tick| tick.in_time).sum::<u64>() as f64;
        got += in_time;
        could += due.min(capacity);
        seconds += usize::from(due >= 0.3 * capacity && in_time <= 0.1 * due.min(capacity));
    }
    (seconds, got / f64::max(could, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(due: u64, in_time: u64, unserved: u64) -> Tick {
        Tick { due, in_time, unserved }
    }

    #[test]
    fn a_cold_start_ends_with_the_first_usual_half_second() {
        let mut run = vec![tick(200, 20, 180); 12];
        run.extend(vec![tick(200, 100, 100); 58]);
        assert!((until_usual(&run) - 1.2).abs() < 1e-9);
        assert!((until_usual(&vec![tick(200, 0, 200); 70]) - 7.0).abs() < 1e-9, "never");
        assert_eq!(until_usual(&vec![tick(200, 95, 105); 70]), 0.0);
    }

    #[test]
    fn only_rejections_after_the_overload_count() {
        let mut run = vec![tick(200, 100, 100); 70];
        run.extend([tick(50, 40, 10), tick(50, 50, 0), tick(50, 49, 1), tick(50, 50, 0)]);
        assert!((last_rejection(&run, 70) - 0.3).abs() < 1e-9);
        assert_eq!(last_rejection(&run, 73), 0.0);
    }

    #[test]
    fn a_second_without_answers_is_a_lock_out_only_under_demand() {
        let second = |due, in_time| vec![tick(due, in_time, 0); SECOND];
        assert_eq!(locked_out(&second(100, 9), 1_000.0).0, 1);
        assert_eq!(locked_out(&second(100, 50), 1_000.0), (0, 0.5));
        assert_eq!(locked_out(&second(20, 0), 1_000.0).0, 0, "little was asked");
    }

    #[test]
    fn random_steps_fill_the_time_between_their_bounds() {
        let phases = random_steps(1, 1_000.0, Duration::from_secs(60));
        assert_eq!(phases.iter().map(|(_, span)| *span).sum::<Duration>(), Duration::from_secs(60));
        assert!(
            phases.iter().all(|(demand, _)| matches!(demand, Demand::Rate(rate) if (100.0..=4_000.0).contains(rate)))
        );
    }
}
