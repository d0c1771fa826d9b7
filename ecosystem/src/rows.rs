//! Expected and measured outcomes, one row each. A missed row does not fail the program.

use crate::child::Server;
use crate::guard::Guard;
use crate::load::{self, Demand, LoadResult, Plan, alike};
use crate::{args, overhead, server};
use anyhow::Result;
use clap::ValueEnum;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod adaptive;
mod envoy;
mod more;
mod outside;
mod readme;
mod retries;
mod room;
mod tiers;

/// How to measure.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub(crate) struct Args {
    /// A short round of the most telling rows.
    #[arg(long)]
    quick: bool,
    /// Rounds of which medians are taken; 5, or 1 if it is to be quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of a measurement; 2, or 3 if it is to be quick.
    #[arg(long)]
    seconds: Option<u64>,
    /// Rivals are left out.
    #[arg(long)]
    alone: bool,
    /// Minutes of half a load in the row of false refusals; 10, or 0.2 if it is to be quick.
    #[arg(long)]
    minutes: Option<f64>,
    /// Only these groups of rows, by name.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Writes the results there, as JSON.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// The README's first number.
    Readme,
    /// Twice the capacity, beside the rivals.
    Overload,
    /// Twice the capacity at 50 us of work, with and without a wait room.
    Room,
    /// Five times the capacity, and its end.
    Five,
    /// The layer's own cost.
    Layer,
    /// A service that slows down for a while.
    Slower,
    /// Requests of unequal cost.
    Costs,
    /// A pool of connections.
    Pool,
    /// Pauses of the whole process.
    Pauses,
    /// Clients of other makes.
    Outside,
    /// Replicas behind Envoy.
    Envoy,
    /// Classes of requests.
    Classes,
    /// Tenants.
    Tenants,
    /// A service that asks another.
    Tiers,
    /// Clients that ask again.
    Retries,
    /// Refusals where there is no overload. Takes longest.
    False,
}

/// Number of connections, each with at most one request in flight.
///
/// With so many, a request rarely waits for the previous one on its connection, which no server
/// could help. Fewer connections could not keep 100 ms of work queued.
fn connections(work: u64) -> usize {
    (500_000 / work.max(1) as usize).clamp(1_000, 2_000)
}

const SLO: Duration = Duration::from_millis(20);

/// A row of the table.
struct Row {
    outcome: String,
    bar: String,
    got: String,
    value: f64,
    /// `None` for rows that are shown only for comparison.
    met: Option<bool>,
}

struct Bench {
    span: Duration,
    rounds: usize,
    seed: u64,
    busiest: f64,
    rows: Vec<Row>,
}

/// Measures and prints all rows.
pub(crate) fn measure(args: &Args) -> Result<()> {
    server::pin(1).or_else(|_| server::pin(0))?;
    let seconds = args.seconds.unwrap_or(if args.quick { 3 } else { 2 }).max(1);
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 }).max(1);
    let mut bench = Bench { span: Duration::from_secs(seconds), rounds, seed: 1, busiest: 0.0, rows: Vec::new() };
    println!("load average before: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let minutes = args.minutes.unwrap_or(if args.quick { 0.2 } else { 10.0 });
    for group in Group::value_variants() {
        if !args.only.is_empty() && !args.only.contains(group) {
            continue;
        }
        match group {
            Group::Readme => bench.readme()?,
            Group::Overload => {
                for work in [500, 50] {
                    bench.overload(work, 0, !args.alone)?;
                }
                if !args.quick {
                    // With a handler that awaits first, rivals can see the load.
                    bench.overload(200, 5, !args.alone)?;
                }
            }
            Group::Room => bench.room()?,
            Group::Five => bench.five_times()?,
            Group::Layer => bench.layer()?,
            Group::Slower => bench.slower()?,
            Group::Costs => bench.costs()?,
            Group::Pool => bench.pool()?,
            Group::Pauses => bench.pauses()?,
            Group::Outside => bench.outside()?,
            Group::Envoy => bench.envoy()?,
            Group::Classes => bench.classes()?,
            Group::Tenants => bench.tenants()?,
            Group::Tiers => bench.tiers()?,
            Group::Retries => bench.retries()?,
            Group::False => {
                bench.false_refusals(Duration::from_secs_f64(minutes.clamp(0.01, 60.0) * 60.0), !args.alone)?
            }
        }
    }
    println!("the generator used at most {:.0} % of its CPU", bench.busiest * 100.0);
    if bench.busiest > 0.9 {
        println!("LOAD-BOUND: the generator may have been the limit");
    }
    println!("load average after: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    if let Some(path) = &args.json {
        let rows: Vec<_> = bench.rows.iter().map(Row::json).collect();
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

impl Row {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "outcome": self.outcome, "bar": self.bar, "value": self.value, "got": self.got, "met": self.met,
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Share of the capacity answered in time, latencies of the answered requests in ms, and the
/// rejected share.
#[derive(Clone, Copy)]
struct Goodput {
    share: f64,
    p50: f64,
    p99: f64,
    refused: f64,
}

impl Goodput {
    fn of(result: &LoadResult, capacity: f64) -> Self {
        let all = result.all();
        let quantile = |part| all.latency.value_at_quantile(part) as f64 / 1e3;
        let refused = all.refused as f64 / all.due.max(1) as f64;
        Goodput { share: result.per_second(all.in_time) / capacity, p50: quantile(0.5), p99: quantile(0.99), refused }
    }

    fn median(of: &[Goodput]) -> Self {
        let of = |pick: fn(&Goodput) -> f64| median(of.iter().map(pick).collect());
        Goodput { share: of(|r| r.share), p50: of(|r| r.p50), p99: of(|r| r.p99), refused: of(|r| r.refused) }
    }
}

/// Largest share of the capacity that can be served at twice the capacity if the rest is rejected.
///
/// Each rejection takes as long as an empty response: `served / capacity + rejected / empty = 1`.
fn most_in_time(capacity: f64, empty: f64) -> f64 {
    let refusal = capacity / empty.max(capacity);
    ((1.0 - 2.0 * refusal) / (1.0 - refusal).max(1e-3)).max(0.0)
}

/// Keeps only the best of tower's limits, because a user would have tuned it. The first round is
/// the tuning.
fn keep_best_limit(measured: &mut Vec<(Guard, Vec<Goodput>)>) {
    let limits = measured.iter().filter(|(guard, _)| guard.limit().is_some());
    let best =
        limits.map(|(guard, results)| (*guard, Goodput::median(results).share)).max_by(|a, b| a.1.total_cmp(&b.1));
    measured.retain(|(guard, _)| guard.limit().is_none() || Some(*guard) == best.map(|(guard, _)| guard));
}

fn name(guard: Guard) -> String {
    guard.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Bench {
    fn row(&mut self, outcome: String, bar: &str, got: String, value: f64, met: Option<bool>) {
        let verdict = met.map_or("", |met| if met { "met" } else { "MISSED" });
        println!("{outcome:<64} {bar:<10} {got:<46} {verdict}");
        self.rows.push(Row { outcome, bar: bar.into(), got, value, met });
    }

    fn load(
        &mut self,
        guard: Guard,
        (work, wait): (u64, u64),
        phases: Vec<(Demand, Duration)>,
        warmup: Duration,
        kind: fn(usize) -> (String, usize),
    ) -> Result<(LoadResult, serde_json::Value)> {
        let args = args::Args { guard, work, wait, ..Default::default() };
        self.load_of(args, phases, warmup, kind, |_, _| {})
    }

    /// Loads a service with any settings; `during` runs beside the load until its flag is set.
    fn load_of(
        &mut self,
        args: args::Args,
        phases: Vec<(Demand, Duration)>,
        warmup: Duration,
        kind: fn(usize) -> (String, usize),
        during: impl Fn(&Server, &AtomicBool) + Sync,
    ) -> Result<(LoadResult, serde_json::Value)> {
        let args = args::Args { slo: SLO.as_millis() as u64, cpu: Some(0), ..args };
        let server = Server::start(&args)?;
        self.seed += 1;
        // A closed loop keeps one worker busy with few connections.
        let closed = matches!(phases.first(), Some((Demand::Closed, _)));
        let connections = if closed && args.wait == 0 { 16 } else { connections(args.work) };
        let plan = Plan { address: server.address, connections, phases, warmup, objective: SLO, seed: self.seed, kind };
        let stop = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| during(&server, &stop));
            let result = load::run(&plan);
            stop.store(true, Ordering::Relaxed);
            result
        })?;
        self.busiest = self.busiest.max(result.busy);
        Ok((result, server.stop()?))
    }

    fn capacity(&mut self, guard: Guard, work: (u64, u64)) -> Result<f64> {
        let span = self.span.min(Duration::from_secs(3));
        let (result, _) = self.load(guard, work, vec![(Demand::Closed, span)], span / 4, alike)?;
        let all = result.all();
        Ok(result.per_second(all.answered + all.refused))
    }

    /// Goodput over capacity at twice the capacity.
    fn overload(&mut self, work: u64, wait: u64, rivals: bool) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (work, wait))?;
        println!(
            "\n{work} us of work after {wait} ms of waiting, {} connections: {capacity:.0} per second in a closed loop",
            connections(work)
        );
        let empty = self.capacity(Guard::Nothing, (0, 0))?;
        let most = most_in_time(capacity, empty);
        let title = format!("{work}+{wait}: the most at 2 x if a refusal costs an empty answer");
        self.row(title, "", format!("{most:.2} (an empty one takes {:.1} us)", 1e6 / empty.max(1.0)), most, None);
        let mut guards = vec![Guard::Nothing, Guard::Lateness, Guard::Level, Guard::Probe];
        if rivals {
            guards.extend(Guard::LIMITS.map(|(guard, _)| guard));
            guards.extend([Guard::ResilienceAimd, Guard::ResilienceVegas, Guard::AccGradient2]);
        }
        let mut measured: Vec<(Guard, Vec<Goodput>)> = guards.into_iter().map(|guard| (guard, Vec::new())).collect();
        let (mut envoy, mut envoy_cpus) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            // Guards alternate, so that disturbances on the machine meet all alike.
            let phases = || vec![(Demand::Rate(capacity * 2.0), self.span)];
            let (phases, warmup) = (phases(), self.span / 3);
            for (guard, results) in &mut measured {
                let (result, _) = self.load(*guard, (work, wait), phases.clone(), warmup, alike)?;
                results.push(Goodput::of(&result, capacity));
            }
            keep_best_limit(&mut measured);
            if rivals
                && work >= 200
                && let Some((result, cpus)) = self.adaptive((work, wait), phases, warmup)?
            {
                envoy.push(Goodput::of(&result, capacity));
                envoy_cpus.push(cpus);
            }
        }
        let mut goodputs = Vec::new();
        for (guard, results) in &measured {
            let Goodput { share, p50, p99, refused } = Goodput::median(results);
            goodputs.push(share);
            let bar = match guard {
                Guard::Lateness => Some(0.95),
                Guard::Level => Some(0.92),
                Guard::Probe => Some(0.6),
                _ => None,
            };
            let in_half = *guard != Guard::Level || p50 <= SLO.as_secs_f64() * 500.0;
            let got = format!("{share:.2}, p50 {p50:.1} p99 {p99:.1} ms, {:.0} % refused", refused * 100.0);
            self.row(
                format!("{work}+{wait}: in time / capacity at 2 x, {}", name(*guard)),
                &bar.map(|bar| format!(">= {bar}")).unwrap_or_default(),
                got,
                share,
                bar.map(|bar| share >= bar && in_half),
            );
            if *guard == Guard::Level {
                let title = format!("{work}+{wait}: p99 of the admitted at 2 x, level");
                self.row(title, "<= 20 ms", format!("{p99:.1} ms"), p99, Some(p99 <= 20.0));
            }
        }
        if rivals {
            let ours = goodputs[1].max(goodputs[2]);
            if !envoy.is_empty() {
                let Goodput { share, p50, p99, refused } = Goodput::median(&envoy);
                goodputs.push(share);
                let got = format!("{share:.2}, p50 {p50:.1} p99 {p99:.1} ms, {:.0} % refused", refused * 100.0);
                let title = format!("{work}+{wait}: in time / capacity at 2 x, envoy adaptive");
                self.row(title, "", got, share, None);
                // The service has one CPU with and without Envoy; Envoy runs on the generator's.
                let cpus = median(envoy_cpus);
                let each = share / (1.0 + cpus);
                let title = format!("{work}+{wait}: ours over envoy adaptive's, per CPU of service and proxy");
                let got = format!("{ours:.2} / {each:.2} (Envoy had {cpus:.2} CPUs besides)");
                self.row(title, "", got, ours / each.max(1e-3), None);
            }
            let best = goodputs[4..].iter().copied().fold(0.0, f64::max);
            let ratio = ours / best.max(1e-3);
            let bar = if wait == 0 { 1.2 } else { 1.0 };
            let title = format!("{work}+{wait}: best of ours over the best rival");
            self.row(title, &format!(">= {bar}"), format!("{ours:.2} / {best:.2}"), ratio, Some(ratio >= bar));
        }
        Ok(())
    }

    /// Five times the capacity, then half of it.
    fn five_times(&mut self) -> Result<()> {
        println!();
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let high = self.span;
        let phases = vec![(Demand::Rate(capacity * 5.0), high), (Demand::Rate(capacity * 0.5), Duration::from_secs(3))];
        let (result, report) = self.load(Guard::Level, (500, 0), phases, Duration::ZERO, alike)?;
        let p99 = result.all().latency.value_at_quantile(0.99) as f64 / 1e3;
        self.row(
            "p99 of the admitted at 5 x, from the start".into(),
            "<= 20 ms",
            format!("{p99:.1} ms"),
            p99,
            Some(p99 <= 20.0),
        );
        let last = result.last_refusal.saturating_sub(high).as_secs_f64();
        self.row("last refusal after the overload".into(), "<= 1 s", format!("{last:.2} s"), last, Some(last <= 1.0));
        let in_flight = report["in_flight"].as_f64().unwrap_or(f64::NAN);
        self.row("in flight at the end".into(), "0", format!("{in_flight}"), in_flight, Some(in_flight == 0.0));
        Ok(())
    }

    /// The layer's own cost.
    fn layer(&mut self) -> Result<()> {
        let cost = overhead::measure(self.rounds.max(5));
        self.row(
            "layer's time per request, nothing refused".into(),
            "<= 400 ns",
            format!("{cost:.0} ns"),
            cost,
            Some(cost <= 400.0),
        );
        let (mut rates, mut refusals) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds.max(3) {
            let bare = self.capacity(Guard::Nothing, (0, 0))?;
            rates.push(self.capacity(Guard::Level, (0, 0))? / bare);
            refusals.push(bare / self.capacity(Guard::RefuseAll, (0, 0))?);
        }
        let (rate, refusal) = (median(rates), median(refusals));
        self.row(
            "rate of an empty handler with / without the layer".into(),
            ">= 0.97",
            format!("{rate:.3}"),
            rate,
            Some(rate >= 0.97),
        );
        self.row(
            "cost of a refusal / of an empty handler's answer".into(),
            "<= 1.1",
            format!("{refusal:.3}"),
            refusal,
            Some(refusal <= 1.1),
        );
        Ok(())
    }

    fn false_refusals(&mut self, half: Duration, rivals: bool) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        for (title, load, span) in [("from cold at 0.9", 0.9, self.span * 2), ("at half load", 0.5, half)] {
            let phases = vec![(Demand::Rate(capacity * load), span)];
            let (result, report) = self.load(Guard::Level, (500, 0), phases, Duration::ZERO, alike)?;
            let all = result.all();
            let refused = all.refused as f64 / all.due.max(1) as f64;
            let why = report["newest"].as_str().filter(|_| all.refused > 0).unwrap_or("").to_owned();
            let got = format!("{:.3} % of {}", refused * 100.0, all.due);
            self.row(
                format!("refused {title}, {:.0} s", span.as_secs_f64()),
                "<= 0.1 %",
                got,
                refused,
                Some(refused <= 0.001),
            );
            if !why.is_empty() {
                println!("    {why}");
            }
        }
        if rivals {
            // 130 s contain two of Envoy's one-minute windows; a quick run contains only the first.
            let span = half.min(Duration::from_secs(130));
            let phases = vec![(Demand::Rate(capacity * 0.5), span)];
            if let Some((result, _)) = self.adaptive((500, 0), phases, Duration::ZERO)? {
                let all = result.all();
                let refused = all.refused as f64 / all.due.max(1) as f64;
                let title = format!("refused at half load, {:.0} s, envoy adaptive", span.as_secs_f64());
                self.row(title, "", format!("{:.3} % of {}", refused * 100.0, all.due), refused, None);
            }
        }
        Ok(())
    }

    fn classes(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let phases = vec![(Demand::Rate(capacity * 2.0), self.span)];
        let kind = |index: usize| (format!("leeward: p={}\r\n", [1, 49, 113][index % 3]), index % 3);
        let (load, _) = self.load(Guard::Level, (500, 0), phases, self.span / 3, kind)?;
        let shares: Vec<f64> = load.groups.iter().map(|group| group.refused as f64 / group.due.max(1) as f64).collect();
        let got = format!("{:.2} %, {:.0} %, {:.0} %", shares[0] * 100.0, shares[1] * 100.0, shares[2] * 100.0);
        self.row(
            "refused of the highest of 3 classes at 2 x".into(),
            "<= 0.5 %",
            got,
            shares[0],
            Some(shares[0] <= 0.005),
        );
        Ok(())
    }

    fn tenants(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let phases = vec![(Demand::Rate(capacity * 2.0), self.span)];
        // 90 % of the connections belong to one tenant; nine other tenants share the rest.
        let kind = |index: usize| {
            let tenant = if !index.is_multiple_of(10) { 0 } else { 1 + index / 10 % 9 };
            (format!("x-tenant: t{tenant}\r\n"), usize::from(tenant > 0))
        };
        let (result, _) = self.load(Guard::Level, (500, 0), phases, self.span / 3, kind)?;
        let modest = &result.groups[1];
        let kept = modest.in_time as f64 / modest.due.max(1) as f64;
        let got = format!("{kept:.3} of what they asked");
        self.row(
            "goodput of nine modest tenants beside one with 90 %".into(),
            ">= 0.95",
            got,
            kept,
            Some(kept >= 0.95),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_reduce_the_attainable_goodput_by_their_cost() {
        assert_eq!(most_in_time(1_000.0, 1e9).round(), 1.0);
        // A rejection costs a quarter of a request. Rejecting all takes half of the time; each
        // request served instead takes three quarters more.
        assert!((most_in_time(1_000.0, 4_000.0) - 0.5 / 0.75).abs() < 1e-9);
        assert_eq!(most_in_time(1_000.0, 1_000.0), 0.0, "nothing is left where a refusal costs as much as the request");
    }

    #[test]
    fn only_the_best_concurrency_limit_is_kept() {
        let goodput = |share| vec![Goodput { share, p50: 1.0, p99: 1.0, refused: 0.0 }];
        let mut measured = vec![
            (Guard::Nothing, goodput(0.9)),
            (Guard::Limit1, goodput(0.1)),
            (Guard::Limit4, goodput(0.3)),
            (Guard::AccGradient2, goodput(0.0)),
        ];
        keep_best_limit(&mut measured);
        let kept: Vec<(Guard, f64)> = measured.iter().map(|(guard, of)| (*guard, of[0].share)).collect();
        assert_eq!(kept, [(Guard::Nothing, 0.9), (Guard::Limit4, 0.3), (Guard::AccGradient2, 0.0)]);
    }
}
