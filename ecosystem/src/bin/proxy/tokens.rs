//! Streams of a language model's server: the objective is the time to the first token. Beside the
//! proxy with static numbers, of which the best is the mark.

use crate::contender::{Contender, Setup};
use crate::line::{Bar, Line, median};
use crate::measure::{Bench, settle};
use crate::plan::{Demand, Group, Kind, Plan};
use crate::process::Process;
use crate::sample::{Mode, Service};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

/// Mode of the service on Go.
const MODE: &str = "tokens";
/// Objective for the first token; a step of the service takes 20 ms.
const OBJECTIVE: Duration = Duration::from_millis(250);
/// Streams of the service's batch, with some that wait for room.
const CLOSED: usize = 320;
/// Static numbers of requests without a first token.
const NUMBERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Streams at twice the capacity.
pub(crate) fn tokens(bench: &mut Bench) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start_in(Service::Go, MODE, &bench.folder)?;
    let direct = load(bench, Contender::Direct, "", &service, Demand::Closed(CLOSED))?;
    let capacity = direct.answered as f64 / bench.spans.span.as_secs_f64();
    eprintln!("    capacity {capacity:.0} streams/s");
    let demand = Demand::Rate(2.0 * capacity);
    let (mut ours, mut cut, mut numbers) = (Vec::new(), 0, NUMBERS.map(|number| (number, Vec::new())));
    for _ in 0..bench.spans.rounds {
        let group = load(bench, Contender::Ours, "", &service, demand)?;
        cut += group.cut;
        ours.push(in_time(&group));
        eprintln!("    knee: {:.3} in time, p99 {:.0} ms", in_time(&group), group.quantile_ms(0.99));
        for (number, shares) in &mut numbers {
            let group = load(bench, Contender::Ours, &format!("limit = \"{number}\"\n"), &service, demand)?;
            eprintln!("    {number}: {:.3} in time, p99 {:.0} ms", in_time(&group), group.quantile_ms(0.99));
            shares.push(in_time(&group));
        }
    }
    let streams = (2.0 * capacity * bench.spans.span.as_secs_f64()) as u64;
    let none = load(bench, Contender::Direct, "", &service, demand)?;
    let numbers = numbers.map(|(number, shares)| (number, median(shares)));
    let (best, most) = numbers.into_iter().fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best });
    let ours = median(ours);
    let beside = format!("number {best} {most:.3}, none {:.3}", in_time(&none));
    let raw = json!({ "capacity": capacity, "knee": ours, "cut": cut, "numbers": numbers, "none": in_time(&none) });
    let ratio = Line::new(
        format!("{streams} token streams at 2 x: first tokens in time over the best number's"),
        Bar::AtLeast(0.95),
        Some(ours / most.max(1e-3)),
        |ratio| format!("{ratio:.3}"),
    );
    let of_begun = Line::new("begun token streams that were cut".into(), Bar::AtMost(0.0), Some(cut as f64), |count| {
        format!("{count:.0}")
    });
    Ok((vec![ratio.with(&format!(" ({ours:.3} of all)")).beside(beside), of_begun], raw))
}

/// Share of the streams whose first token came in time.
fn in_time(group: &Group) -> f64 {
    group.in_time as f64 / group.due.max(1) as f64
}

/// Loads a fresh proxy; `rules`: more lines of its configuration.
fn load(bench: &mut Bench, of: Contender, rules: &str, service: &Process, demand: Demand) -> Result<Group> {
    let rules = format!("until = \"first-byte\"\n{rules}");
    let (group, _) = bench.quietly(|bench| {
        settle(service, Mode::Cpu)?;
        // The streams of the last load end.
        std::thread::sleep(Duration::from_secs(2));
        let setup = bench.setup(service.address, OBJECTIVE, Default::default());
        let front = of.start(&Setup { rules: &rules, ..setup })?;
        // The batch fills, and streams of the beginning end.
        let (warmup, seed) = (2 * bench.spans.warmup, bench.next_seed());
        let phases = vec![(demand, warmup + bench.spans.span)];
        let kinds = vec![Kind::path("/stream", 1.0)];
        let plan =
            Plan { address: front.address, phases, warmup, objective: OBJECTIVE, seed, kinds, to_first_byte: true };
        Ok(bench.load(&plan)?.all())
    })?;
    Ok(group)
}
