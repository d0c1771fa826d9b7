//! The rows of the sample: goodput beside the rivals, latency of the admitted, and rejections
//! below the capacity.

use crate::contender::{Contender, Numbers};
use crate::line::{Bar, Line};
use crate::measure::{Bench, Shot};
use crate::sample::Row;
use crate::{search, services::Missing, tuned::Tuned};
use anyhow::Result;
use serde_json::{Value, json};

/// Outcome of a row's main line ends so.
const GOODPUT: &str = ": goodput over the best rival's";
/// Least goodput over the best rival's, in all rows.
const LEAST: f64 = 0.9;
/// What most rows have to reach, and which share of them is most.
const USUAL: (f64, f64) = (0.97, 0.9);

/// Contenders with their measurements; `None` where one is not installed.
type Shots = Vec<(Contender, Option<Vec<Shot>>)>;

/// Measures a row; `Err` inside where its service is not installed.
pub(crate) fn measure(
    bench: &mut Bench,
    row: &Row,
    tuned: &mut Tuned,
    searches: bool,
) -> Result<Result<(Vec<Line>, Value), Missing>> {
    if let Err(missing) = bench.services.build(row.service)? {
        return Ok(Err(missing));
    }
    let service = bench.services.start(row.service, row.mode, &bench.folder)?;
    let capacity = bench.capacity(&service, row.mode)?;
    eprintln!("  {}: capacity {capacity:.0}/s", row.name());
    let numbers = match tuned.get(&row.name()).filter(|_| !searches) {
        Some(numbers) => numbers,
        None if Contender::Haproxy.program().is_some() && Contender::Nginx.program().is_some() => {
            let (numbers, haproxy, nginx) = search::search(bench, row, &service, capacity)?;
            tuned.set(&row.name(), numbers, haproxy, nginx)?;
            numbers
        }
        // Without either, there is no search, and what is installed has ordinary numbers.
        None => Numbers { maxconn: 16, queue_ms: 20, limit: 32 },
    };
    if searches {
        return Ok(Ok((Vec::new(), Value::Null)));
    }
    let mut shots: Shots = Contender::ALL.map(|of| (of, of.program().map(|_| Vec::new()))).to_vec();
    let (count, rounds) = (shots.len(), bench.spans.rounds);
    for round in 0..rounds {
        // Each round begins with another one, so that no one always comes after the same.
        for index in 0..count {
            let (of, Some(measured)) = &mut shots[(index + round) % count] else { continue };
            let shot = bench.shot(row, *of, &service, capacity, numbers, bench.spans)?;
            let Shot { share, p50, high, unserved, .. } = shot;
            let rejected = unserved * 100.0;
            eprintln!(
                "    round {} of {rounds}, {:<8} {share:.3}, p50 {p50:.1}, high {high:.1} ms, {rejected:.1} % rejected",
                round + 1,
                of.name()
            );
            measured.push(shot);
        }
    }
    let medians: Vec<_> = shots.iter().map(|(of, shots)| (*of, shots.as_deref().and_then(Shot::median))).collect();
    let raw = shots.iter().map(|(of, shots)| {
        let shots = shots.iter().flatten().map(|shot| shot.to_json()).collect::<Vec<_>>();
        (of.name().to_owned(), json!(shots))
    });
    let raw = json!({ "capacity": capacity, "shots": raw.collect::<serde_json::Map<_, _>>() });
    Ok(Ok((judge(row, numbers, &medians), raw)))
}

/// The lines of a row, from the medians of all contenders.
fn judge(row: &Row, numbers: Numbers, medians: &[(Contender, Option<Shot>)]) -> Vec<Line> {
    let of = |contender| medians.iter().find(|(of, _)| *of == contender).and_then(|(_, shot)| *shot);
    let ours = of(Contender::Ours);
    let rivals = || medians.iter().filter(|(of, _)| *of != Contender::Ours);
    let best = rivals().filter_map(|(_, shot)| *shot).map(|shot| shot.goodput).fold(0.0, f64::max);
    let show = |show: &dyn Fn(&Shot) -> String| {
        let of = |(of, shot): &(Contender, Option<Shot>)| {
            let shown = shot.as_ref().map_or("not installed".into(), show);
            let tuned = match of {
                Contender::Haproxy => format!(" ({}, {} ms)", numbers.maxconn, numbers.queue_ms),
                Contender::Nginx => format!(" ({})", numbers.limit),
                _ => String::new(),
            };
            format!("{}{tuned} {shown}", of.name())
        };
        rivals().map(of).collect::<Vec<_>>().join(", ")
    };
    let two = |value| format!("{value:.2}");
    let ratio = ours.map(|ours| ours.goodput / best.max(1e-3));
    let more =
        ours.map_or(String::new(), |ours| format!(" ({:.2} of the capacity, p50 {:.1} ms)", ours.share, ours.p50));
    let shares = show(&|shot| format!("{:.2}", shot.share));
    let mut lines = vec![
        Line::new(row.name() + GOODPUT, Bar::AtLeast(LEAST), ratio, |ratio| format!("{ratio:.3}"))
            .with(&more)
            .beside(shares),
    ];
    let title = format!("{}: p{:.0} of the admitted", row.name(), row.mode.percentile() * 100.0);
    let slo = row.mode.objective().as_secs_f64() * 1e3;
    let highs = show(&|shot| format!("{:.1}", shot.high));
    lines
        .push(Line::new(title, Bar::AtMost(slo), ours.map(|ours| ours.high), |ms| format!("{ms:.1} ms")).beside(highs));
    if row.demand < 1.0 {
        let most = if row.demand <= 0.5 { 0.0 } else { 0.001 };
        let percent = |part: f64| format!("{:.2} %", part * 100.0);
        let line = Line::new(row.name() + ": refused", Bar::AtMost(most), ours.map(|ours| ours.unserved), percent);
        lines.push(line.beside(show(&|shot| percent(shot.unserved))));
    }
    if let (Some(least), Some(envoy)) = (row.mode.over_envoy(row.demand), of(Contender::Envoy)) {
        let ratio = ours.map(|ours| ours.goodput / envoy.goodput.max(1e-3));
        lines.push(Line::new(row.name() + ": goodput over Envoy's", Bar::AtLeast(least), ratio, two));
    }
    lines
}

/// How many of the measured rows reach what most have to; nothing where none is measured.
pub(crate) fn summary(lines: &[Line]) -> Option<Line> {
    let ratios: Vec<f64> =
        lines.iter().filter(|line| line.outcome.ends_with(GOODPUT)).filter_map(|line| line.value).collect();
    let reached = ratios.iter().filter(|ratio| **ratio >= USUAL.0).count();
    let share = (!ratios.is_empty()).then(|| reached as f64 / ratios.len() as f64)?;
    let title = format!("rows with at least {} of the best rival's goodput", USUAL.0);
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let line = Line::new(title, Bar::AtLeast(USUAL.1), Some(share), percent);
    Some(line.with(&format!(" ({reached} of {})", ratios.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Mode, Service};

    fn row(mode: Mode, demand: f64) -> Row {
        Row::new(Service::Go, mode, demand)
    }

    fn shot(goodput: f64) -> Option<Shot> {
        Some(Shot { goodput, share: goodput / 1e3, p50: 5.0, high: 40.0, unserved: 0.0005, foreign: 0.0 })
    }

    fn met(lines: &[Line]) -> Vec<Option<bool>> {
        lines.iter().map(|line| line.met).collect()
    }

    #[test]
    fn ours_is_compared_with_the_best_rival_that_is_installed() {
        let medians = |ours| {
            [
                (Contender::Ours, ours),
                (Contender::Haproxy, shot(1_000.0)),
                (Contender::Nginx, None),
                (Contender::Envoy, shot(800.0)),
            ]
        };
        let of = |ours| judge(&row(Mode::Bimodal, 2.0), Numbers::default(), &medians(shot(ours)));
        let lines = of(930.0);
        assert_eq!((lines[0].value, met(&lines)), (Some(0.93), vec![Some(true), Some(true), Some(true)]));
        assert!(lines[0].beside.contains("nginx (0) not installed"), "{}", lines[0].beside);
        assert_eq!(met(&of(910.0))[2], Some(false), "1.15 of Envoy's is asked");
        assert_eq!(met(&of(890.0))[0], Some(false));
        let none = judge(&row(Mode::Bimodal, 2.0), Numbers::default(), &medians(None));
        assert_eq!(met(&none), [None, None, None]);
    }

    #[test]
    fn below_the_capacity_rejections_are_counted() {
        let medians = [(Contender::Ours, shot(450.0)), (Contender::Direct, shot(450.0))];
        for (demand, is_met) in [(0.5, false), (0.9, true)] {
            let lines = judge(&row(Mode::Cpu, demand), Numbers::default(), &medians);
            assert_eq!((lines.len(), lines[2].met), (3, Some(is_met)), "{demand}");
        }
        assert_eq!(judge(&row(Mode::Exp, 1.2), Numbers::default(), &medians).len(), 2);
    }

    #[test]
    fn nine_of_ten_rows_reach_what_most_have_to() {
        let lines = |few: usize| -> Vec<Line> {
            let ratio = |index| if index < few { 0.92 } else { 0.98 };
            (0..20)
                .map(|index| {
                    Line::new(format!("x{GOODPUT}"), Bar::AtLeast(LEAST), Some(ratio(index)), |x| x.to_string())
                })
                .collect()
        };
        assert_eq!(summary(&lines(2)).unwrap().met, Some(true));
        assert_eq!(summary(&lines(3)).unwrap().met, Some(false));
        assert_eq!(summary(&[]), None);
    }
}
