//! Rounds: each contender is measured once per round, in rotating order; ratios are taken within a
//! round.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::CompareArgs;
use crate::case::{Bar, CASES, Case, Contender, MANY, Selection};
use crate::certificate::Certificate;
use crate::child::Server;
use crate::load::{self, Load, Times, closed_loop, half, round_trips, sealed};
use crate::outcome::{Measurement, Outcome, Turns, Verdict};
use crate::report::{self, Machine};
use crate::servers::{Idling, ServerKind};
use crate::statistics::Spread;
use crate::system;

/// CPUs, payload and duration of all measurements.
struct Setting {
    server_cpu: usize,
    load_cpu: usize,
    payload: usize,
    idle: Idling,
    work_us: Option<u64>,
    times: Times,
    certificate: Certificate,
}

/// Runs the cases, prints the table and writes the numbers.
///
/// # Errors
/// A contender does not start or does not answer, or the numbers can't be written. A broken
/// contender is reported after the numbers of all others.
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    let cpus = system::cpus();
    let (first, last) = (cpus.first().copied().unwrap_or(0), cpus.last().copied().unwrap_or(0));
    let scale = if args.quick { 3 } else { 1 };
    let setting = Setting {
        server_cpu: args.server_cpu.unwrap_or(first),
        load_cpu: args.load_cpu.unwrap_or(last),
        payload: args.payload as usize,
        idle: args.idle,
        work_us: args.work_us,
        times: Times { warmup: Duration::from_millis(600) / scale, measured: Duration::from_millis(2_400) / scale },
        certificate: Certificate::make()?,
    };
    for cpu in [setting.server_cpu, setting.load_cpu] {
        // The server ignores a failure to pin itself, so check here.
        ensure!(cpus.contains(&cpu), "this program may not use CPU {cpu}; it may use {cpus:?}");
    }
    let machine = Machine { cpus: cpus.len(), server_cpu: setting.server_cpu, load_cpu: setting.load_cpu };
    if let Some(warning) = machine.warning() {
        eprintln!("{warning}");
    }
    report::prepare(&args.out)?;
    system::allow_connections(4_096);
    system::pin(setting.load_cpu)?;

    let cases: Vec<&Case> = match args.cases.is_empty() {
        true => CASES.iter().filter(|case| case.selection == Selection::Always).collect(),
        false => args.cases.clone(),
    };
    let turns: usize = cases.iter().map(|case| case.contenders.len()).sum::<usize>() * args.rounds as usize;
    let bar = progress(turns as u64);
    let mut broken = Vec::new();
    let outcomes = cases.iter().map(|case| run_case(case, args.rounds, &setting, (&bar, &mut broken)));
    let outcomes = outcomes.collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    report::print(&machine, &outcomes, args.quick);
    report::write(&args.out, &machine, &outcomes)?;
    ensure!(broken.is_empty(), "could not be measured: {}", broken.join("; "));
    Ok(())
}

fn progress(turns: u64) -> ProgressBar {
    // The bar hides itself if stderr is no terminal.
    let bar = ProgressBar::new(turns);
    if let Ok(style) = ProgressStyle::with_template("{msg:28}  {bar:30}  {pos}/{len} turns, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Runs a case. A contender that fails is not measured again and is added to `broken`.
fn run_case(
    case: &'static Case,
    rounds: u32,
    setting: &Setting,
    (bar, broken): (&ProgressBar, &mut Vec<String>),
) -> Result<Outcome> {
    let mut contenders: Vec<Turns> = case.contenders.iter().map(no_turns).collect();
    bar.set_message(format!("{}: preparing", case.name));
    let half_load = half_load(case, setting)?;
    for round in 0..rounds as usize {
        for step in 0..case.contenders.len() {
            // The first contender changes every round, so that slow drift favours none.
            let index = (round + step) % case.contenders.len();
            let contender = &case.contenders[index];
            if contenders[index].missing.is_some() {
                bar.inc(1);
                continue;
            }
            bar.set_message(format!("{}: {}", case.name, contender.name));
            // All contenders of a round get the same requests.
            let seed = round as u64 + 1;
            let work_us = if case.work_us > 0 { setting.work_us.unwrap_or(case.work_us) } else { 0 };
            match turn(contender, setting, work_us, half_load, seed) {
                Ok(measurement) => contenders[index].rounds.push(measurement),
                Err(error) => {
                    broken.push(format!("{}, {}: {error:#}", case.name, contender.name));
                    contenders[index].missing = Some(format!("{error:#}"));
                }
            }
            bar.inc(1);
        }
    }
    let verdicts = case.bars.iter().map(|bar| verdict(bar, &contenders)).collect();
    Ok(Outcome { case: case.name, verdicts, contenders })
}

/// An empty result for a contender, before the first round.
fn no_turns(contender: &Contender) -> Turns {
    Turns { name: contender.name, missing: None, rounds: Vec::new() }
}

/// Half of the capacity without control, measured once per case; 0 for cases that don't need it.
fn half_load(case: &Case, setting: &Setting) -> Result<f64> {
    if !case.contenders.iter().any(|contender| matches!(contender.load, Load::Half(_))) {
        return Ok(0.0);
    }
    let server =
        Server::start(ServerKind::NoControl, setting.server_cpu, setting.idle, 0, setting.certificate.folder())?;
    let capacity = half::capacity(server.address(), MANY, setting.times).context("measuring the capacity")?;
    Ok(capacity / 2.0)
}

/// Measures a contender once, in a fresh process.
fn turn(contender: &Contender, setting: &Setting, work_us: u64, half_load: f64, seed: u64) -> Result<Measurement> {
    let certificates = setting.certificate.folder();
    let server = Server::start(contender.server, setting.server_cpu, setting.idle, work_us, certificates)?;
    let (address, payload, times) = (server.address(), setting.payload, setting.times);
    let mut edges: Vec<(Instant, Duration, Duration)> = Vec::new();
    let mut edge = || {
        edges.push((Instant::now(), server.cpu_time()?, system::own_cpu_time()));
        Ok(())
    };
    let mut measurement = match contender.load {
        Load::RoundTrip(dialect) => {
            let latency = round_trips(dialect, address, payload, times, certificates, &mut edge)?;
            let us = |quantile| Some(latency.value_at_quantile(quantile) as f64 / 1e3);
            let rate_per_s = latency.len() as f64 / times.measured.as_secs_f64();
            Measurement { rate_per_s, p50_us: us(0.5), p99_us: us(0.99), ..Measurement::EMPTY }
        }
        Load::Closed { dialect, connections, outstanding } => {
            let closed =
                closed_loop(dialect, address, (connections, outstanding), payload, times, certificates, &mut edge)?;
            Measurement { rate_per_s: closed.rate_per_s, load_idle: Some(closed.idle), ..Measurement::EMPTY }
        }
        Load::Handshakes(dialect) => {
            let tls = load::client(dialect, certificates)?;
            let done = sealed::handshakes(&tls, address, times, &mut edge)?;
            Measurement { rate_per_s: done.rate_per_s, load_idle: Some(done.idle), ..Measurement::EMPTY }
        }
        Load::Half(controller) => {
            // Tail latencies need more samples.
            let times = Times { measured: times.measured * 2, ..times };
            edge()?;
            let report = half::open_loop(address, controller, (MANY, half_load), seed, times)?;
            edge()?;
            let counts = &report.totals;
            let share = |count: u64| Some(count as f64 / counts.offered.max(1) as f64);
            Measurement {
                rate_per_s: report.throughput_per_s,
                p50_us: Some(report.latency.p50.as_micros_f64()),
                p99_us: Some(report.latency.p99.as_micros_f64()),
                load_late: Some(report.adherence.late_share),
                dropped: share(counts.dropped),
                expired: share(counts.expired + counts.overflowed + counts.throttled),
                ..Measurement::EMPTY
            }
        }
    };
    if let [begin, end] = edges[..] {
        let span = (end.0 - begin.0).as_secs_f64();
        measurement.server_cpu = end.1.saturating_sub(begin.1).as_secs_f64() / span;
        measurement.load_cpu = end.2.saturating_sub(begin.2).as_secs_f64() / span;
    }
    Ok(measurement)
}

/// Compares a contender with the best of the others, round by round.
fn verdict(bar: &Bar, contenders: &[Turns]) -> Verdict {
    let rounds = bar.against.iter().chain([&bar.ours]).map(|index| contenders[*index].rounds.len()).min();
    let ratios = (0..rounds.unwrap_or(0)).map(|round| {
        let of = |index: usize| bar.metric.of(&contenders[index].rounds[round]);
        let reference = bar.against.iter().map(|index| of(*index)).reduce(|a, b| bar.bound.harder(a, b));
        of(bar.ours) / reference.unwrap_or(f64::NAN)
    });
    let ratio = Spread::of(ratios);
    Verdict { what: bar.what, asked: bar.bound.to_string(), ratio, met: bar.bound.holds(ratio.median) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Bound, Metric};

    fn turns(name: &'static str, rates: &[f64]) -> Turns {
        let one = |rate_per_s| Measurement { rate_per_s, ..Measurement::EMPTY };
        Turns { name, missing: None, rounds: rates.iter().copied().map(one).collect() }
    }

    #[test]
    fn ratios_are_taken_within_a_round_against_the_best() {
        let bar = Bar { what: "", ours: 0, against: &[1, 2], metric: Metric::Rate, bound: Bound::AtLeast(2.0) };
        let contenders = [turns("a", &[10.0, 60.0, 9.0]), turns("b", &[5.0, 20.0, 1.0]), turns("c", &[1.0, 30.0, 3.0])];
        let verdict = verdict(&bar, &contenders);
        assert_eq!(verdict.ratio, Spread { median: 2.0, least: 2.0, most: 3.0 });
        assert!(verdict.met);
    }
}
