//! Priorities and tenants: what the important ones and the modest ones see of an overload, over
//! HTTP/1.1 or HTTP/2.

use crate::contender::{Contender, Setup};
use crate::line::{Bar, Line, median};
use crate::measure::{Bench, settle};
use crate::plan::{Demand, Group, Kind, Plan};
use crate::process::Process;
use crate::sample::{Mode, Protocol, Service};
use crate::transients::{list, numbers};
use crate::tuned::Tuned;
use anyhow::Result;
use serde_json::{Value, json};

/// Priorities of the three classes.
const CLASSES: [u8; 3] = [8, 56, 120];
/// Modest tenants, and what each asks of the capacity.
const TENANTS: usize = 9;
const MODEST: f64 = 0.05;
/// What the flooding tenant asks.
const FLOOD: f64 = 5.0;
/// Contenders for comparison; the rivals know neither classes nor tenants.
const BESIDE: [Contender; 3] = [Contender::Ours, Contender::Haproxy, Contender::Envoy];

/// The highest of three classes at 2 x, and alone.
pub(crate) fn classes(bench: &mut Bench, tuned: &Tuned, protocol: Protocol) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start(Service::Go, Mode::Cpu, &bench.folder)?;
    let capacity = bench.capacity(&service, Mode::Cpu)?;
    let kinds: Vec<Kind> = CLASSES
        .into_iter()
        .enumerate()
        .map(|(group, class)| kind("leeward", &format!("p={class}"), group, 1.0))
        .collect();
    let mut all = Vec::new();
    for of in BESIDE {
        let (mut ratios, mut refused, mut p99) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.spans.rounds {
            if of.program().is_none() {
                continue;
            }
            let share = 2.0 / CLASSES.len() as f64;
            let alone = group(bench, tuned, (of, protocol), &service, share * capacity, kinds[..1].to_vec(), "", 0)?;
            let beside = group(bench, tuned, (of, protocol), &service, 2.0 * capacity, kinds.clone(), "", 0)?;
            p99.push(beside.quantile_ms(0.99));
            ratios.push(beside.quantile_ms(0.99) / alone.quantile_ms(0.99).max(1e-3));
            refused.push((beside.refused + beside.failed) as f64);
            let (ratio, count, due) = (ratios.last().unwrap_or(&0.0), beside.refused, beside.due);
            eprintln!("    {}: p99 {ratio:.2} of alone, {count} of {due} refused", of.name());
        }
        all.push((of, (!ratios.is_empty()).then(|| (median(ratios), median(refused), median(p99)))));
    }
    let (ours, over) = (all[0].1, over(protocol));
    let more = ours.map_or(String::new(), |(_, _, p99)| format!(" ({p99:.1} ms)"));
    let p99 = Line::new(
        format!("highest of 3 classes at 2 x{over}: p99 over alone"),
        Bar::AtMost(1.3),
        ours.map(|ours| ours.0),
        |ratio| format!("{ratio:.2}"),
    );
    let refused = Line::new(
        format!("highest of 3 classes at 2 x{over}: refused"),
        Bar::AtMost(0.0),
        ours.map(|ours| ours.1),
        |count| format!("{count:.0}"),
    );
    let lines = vec![
        p99.with(&more).beside(list(&all, |(ratio, _, p99)| format!("{ratio:.2} ({p99:.1} ms)"))),
        refused.beside(list(&all, |(_, refused, _)| format!("{refused:.0}"))),
    ];
    let raw = all.iter().map(|(of, result)| (of.name().to_owned(), json!(result))).collect::<serde_json::Map<_, _>>();
    Ok((lines, json!(raw)))
}

/// Nine modest tenants beside one that floods.
pub(crate) fn tenants(bench: &mut Bench, tuned: &Tuned, protocol: Protocol) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start(Service::Go, Mode::Cpu, &bench.folder)?;
    let capacity = bench.capacity(&service, Mode::Cpu)?;
    let rules: String =
        (0..=TENANTS).map(|tenant| format!("[[rule]]\nheader = \"x-tenant: {tenant}\"\ntenant = {tenant}\n")).collect();
    let modest: Vec<Kind> = (1..=TENANTS).map(|tenant| kind("x-tenant", &tenant.to_string(), 0, MODEST)).collect();
    let mut flooded = modest.clone();
    flooded.push(kind("x-tenant", "0", 1, FLOOD));
    let calm = MODEST * TENANTS as f64;
    let mut all = Vec::new();
    for of in BESIDE {
        let mut costs = Vec::new();
        for _ in 0..bench.spans.rounds {
            if of.program().is_none() {
                continue;
            }
            let kept = |group: Group| group.in_time as f64 / group.due.max(1) as f64;
            let alone =
                kept(group(bench, tuned, (of, protocol), &service, calm * capacity, modest.clone(), &rules, 0)?);
            let beside = kept(group(
                bench,
                tuned,
                (of, protocol),
                &service,
                (calm + FLOOD) * capacity,
                flooded.clone(),
                &rules,
                0,
            )?);
            costs.push(1.0 - beside / alone.max(1e-3));
            eprintln!("    {}: in time {alone:.3} alone, {beside:.3} beside the flood", of.name());
        }
        all.push((of, (!costs.is_empty()).then(|| median(costs))));
    }
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let line = Line::new(
        format!("a tenant that floods costs nine others{}", over(protocol)),
        Bar::AtMost(0.02),
        all[0].1,
        percent,
    );
    let raw = all.iter().map(|(of, result)| (of.name().to_owned(), json!(result))).collect::<serde_json::Map<_, _>>();
    Ok((vec![line.beside(list(&all, |cost| percent(*cost)))], json!(raw)))
}

fn over(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Http1 { "" } else { " over HTTP/2" }
}

fn kind(header: &str, value: &str, group: usize, weight: f64) -> Kind {
    Kind { weight, path: "/".into(), headers: format!("{header}: {value}\r\n"), group }
}

/// Outcomes of one group at a rate.
#[expect(clippy::too_many_arguments, reason = "a measurement has this many settings")]
fn group(
    bench: &mut Bench,
    tuned: &Tuned,
    (of, protocol): (Contender, Protocol),
    service: &Process,
    rate: f64,
    kinds: Vec<Kind>,
    rules: &str,
    group: usize,
) -> Result<Group> {
    let objective = Mode::Cpu.objective();
    let (mut groups, _) = bench.quietly(|bench| {
        settle(service, Mode::Cpu)?;
        let front = of.start(&Setup { rules, protocol, ..bench.setup(service.address, objective, numbers(tuned)) })?;
        let (warmup, seed) = (bench.spans.warmup, bench.next_seed());
        let phases = vec![(Demand::Rate(rate), warmup + bench.spans.span)];
        let plan = Plan {
            address: front.address,
            phases,
            warmup,
            objective,
            seed,
            kinds: kinds.clone(),
            to_first_byte: false,
        };
        Ok(bench.load_over(protocol, &plan)?.groups)
    })?;
    Ok(groups.swap_remove(group))
}
