//! What the proxy itself costs: CPU time per request and per rejection, and added latency.

use crate::contender::{Contender, Front, Numbers, Setup};
use crate::line::{Bar, Line, median};
use crate::measure::{Bench, settle};
use crate::plan::{Demand, Kind, LoadResult, Plan};
use crate::process::{Process, SERVICE_CPU, find, free_address};
use crate::sample::{Mode, Service};
use crate::transients::{list, numbers};
use crate::tuned::Tuned;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Contenders for comparison.
pub(crate) const PROXIES: [Contender; 4] = [Contender::Ours, Contender::Haproxy, Contender::Nginx, Contender::Envoy];
const OBJECTIVE: Duration = Duration::from_millis(50);
/// Requests per second of which most are refused.
const FLOOD: f64 = 8_000.0;
/// One number per contender.
pub(crate) type Numbered = Vec<(Contender, Option<f64>)>;

/// A service that costs next to nothing: nginx with 100 bytes, or axum where there is no nginx.
pub(crate) fn trivial(bench: &Bench) -> Result<Process> {
    let Some(nginx) = find("nginx") else { return bench.services.start_in(Service::Axum, "empty", &bench.folder) };
    let (address, folder) = (free_address()?, std::path::absolute(&bench.folder)?);
    let body = "x".repeat(100);
    let config = format!(
        "worker_processes 1;
daemon off;
pid {0}/trivial.pid;
error_log /dev/null crit;
worker_rlimit_nofile 40000;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {0}/trivial-body;
  proxy_temp_path {0}/trivial-proxy;
  fastcgi_temp_path {0}/trivial-fastcgi;
  uwsgi_temp_path {0}/trivial-uwsgi;
  scgi_temp_path {0}/trivial-scgi;
  server {{ listen {address} backlog=4096; location / {{ return 200 \"{body}\"; }} }}
}}
",
        folder.display()
    );
    let path = folder.join("trivial.conf");
    std::fs::write(&path, config)?;
    let path = path.to_string_lossy().into_owned();
    let command =
        [nginx, "-p".into(), format!("{}/", folder.display()), "-e".into(), "/dev/null".into(), "-c".into(), path];
    Process::start(&command, &[], SERVICE_CPU, address, &bench.folder)
}

/// Starts a proxy before a service, without its limit where it has one.
pub(crate) fn forwarding(bench: &Bench, of: Contender, service: SocketAddr) -> Result<Front> {
    of.start(&Setup {
        adaptive: false,
        ..bench.setup(service, OBJECTIVE, Numbers { queue_ms: 1_000, ..Numbers::default() })
    })
}

fn load(bench: &mut Bench, address: SocketAddr, demand: Demand, span: Duration) -> Result<LoadResult> {
    let seed = bench.next_seed();
    let kinds = vec![Kind::path("/", 1.0)];
    bench.load(&Plan {
        address,
        phases: vec![(demand, span)],
        warmup: Duration::ZERO,
        objective: OBJECTIVE,
        seed,
        kinds,
        to_first_byte: false,
    })
}

/// CPU time of a proxy over a load, in us, and the load's result.
fn costed(bench: &mut Bench, front: &Front, demand: Demand, span: Duration) -> Result<(f64, LoadResult)> {
    load(bench, front.address, demand, Duration::from_millis(700))?;
    let before = front.cpu_time();
    let result = load(bench, front.address, demand, span)?;
    Ok(((front.cpu_time() - before).as_secs_f64() * 1e6, result))
}

/// Medians over alternating rounds; `one` measures one contender.
fn rounds(
    bench: &mut Bench,
    contenders: &[Contender],
    unit: &str,
    mut one: impl FnMut(&mut Bench, Contender) -> Result<f64>,
) -> Result<Numbered> {
    let mut all: Vec<(Contender, Option<Vec<f64>>)> =
        contenders.iter().map(|of| (*of, of.program().map(|_| Vec::new()))).collect();
    for round in 0..bench.spans.rounds {
        for (of, values) in &mut all {
            let Some(values) = values else { continue };
            let (value, _) = bench.quietly(|bench| one(bench, *of))?;
            eprintln!("    round {}, {}: {value:.1} {unit}", round + 1, of.name());
            values.push(value);
        }
    }
    Ok(all.into_iter().map(|(of, values)| (of, values.map(median))).collect())
}

pub(crate) fn of(numbers: &Numbered, contender: Contender) -> Option<f64> {
    numbers.iter().find(|(of, _)| *of == contender).and_then(|(_, value)| *value)
}

pub(crate) fn raw(numbers: &Numbered) -> Value {
    json!(numbers.iter().map(|(of, value)| (of.name().to_owned(), json!(value))).collect::<serde_json::Map<_, _>>())
}

/// CPU time per proxied request, in a closed loop of 64.
pub(crate) fn cost(bench: &mut Bench) -> Result<(Vec<Line>, Value)> {
    let service = trivial(bench)?;
    let (address, span) = (service.address, bench.spans.span);
    let all = rounds(bench, &PROXIES, "us per request", |bench, of| {
        let front = forwarding(bench, of, address)?;
        let (us, result) = costed(bench, &front, Demand::Closed(64), span)?;
        let answered = result.all().answered;
        anyhow::ensure!(answered > 0, "{} answers nothing", of.name());
        Ok(us / answered as f64)
    })?;
    let ours = of(&all, Contender::Ours);
    let line = |rival: Contender, most: f64| {
        let ratio = of(&all, rival).and_then(|rival| Some(ours? / rival));
        let title = format!("CPU time per request over {}'s", rival.name());
        let more = ours.map_or(String::new(), |ours| format!(" ({ours:.1} us)"));
        let line = Line::new(title, Bar::AtMost(most), ratio, |ratio| format!("{ratio:.2}"));
        line.with(&more).beside(list(&all, |us| format!("{us:.1} us")))
    };
    Ok((vec![line(Contender::Haproxy, 1.25), line(Contender::Envoy, 0.7)], raw(&all)))
}

/// Median latency that a proxy adds at 300 requests per second.
pub(crate) fn latency(bench: &mut Bench) -> Result<(Vec<Line>, Value)> {
    let service = trivial(bench)?;
    let (address, span) = (service.address, bench.spans.span);
    let mut median_of = |bench: &mut Bench, of: Contender| {
        let front = forwarding(bench, of, address)?;
        load(bench, front.address, Demand::Rate(300.0), Duration::from_millis(500))?;
        let result = load(bench, front.address, Demand::Rate(300.0), span)?;
        Ok(result.all().quantile_ms(0.5) * 1e3)
    };
    let with_direct = [&[Contender::Direct][..], &PROXIES].concat();
    let mut all = rounds(bench, &with_direct, "us at the median", &mut median_of)?;
    let direct = of(&all, Contender::Direct).context("nothing stands before the service")?;
    all.retain(|(of, _)| *of != Contender::Direct);
    let added = |us: f64| us - direct;
    let title = "median latency added at 300 requests/s".into();
    let line = Line::new(title, Bar::AtMost(40.0), of(&all, Contender::Ours).map(added), |us| format!("{us:.0} us"));
    let more = format!(" (without: {direct:.0} us)");
    let beside = list(&all, |us| format!("{:.0} us", added(*us)));
    Ok((vec![line.with(&more).beside(beside)], raw(&all)))
}

/// CPU time of a rejection over that of a proxied request, both in an open loop of the same rate.
pub(crate) fn refusal(bench: &mut Bench, tuned: &Tuned) -> Result<(Vec<Line>, Value)> {
    let (fast, slow) = (trivial(bench)?, bench.services.start(Service::Go, Mode::Cpu, &bench.folder)?);
    let (span, numbers) = (bench.spans.span, numbers(tuned));
    let mut refused = Vec::new();
    let all = rounds(bench, &PROXIES, "of a proxied request", |bench, of| {
        let front = forwarding(bench, of, fast.address)?;
        let (us, result) = costed(bench, &front, Demand::Rate(FLOOD), span)?;
        let proxied = us / result.all().answered.max(1) as f64;
        drop(front);
        settle(&slow, Mode::Cpu)?;
        let front = of.start(&bench.setup(slow.address, OBJECTIVE, numbers))?;
        let (us, result) = costed(bench, &front, Demand::Rate(FLOOD), span)?;
        let sum = result.all();
        let refusal = refusal_cost(us, proxied, sum.answered, sum.refused);
        eprintln!("      {proxied:.1} us per request, {refusal:.1} us per rejection of {}", sum.refused);
        if of == Contender::Ours {
            refused.push(refusal);
        }
        Ok(refusal / proxied)
    })?;
    let title = "CPU time of a rejection over a request's".into();
    let line = Line::new(title, Bar::AtMost(0.6), of(&all, Contender::Ours), |ratio| format!("{ratio:.2}"));
    let line = line.with(&format!(" ({:.1} us)", median(refused)));
    Ok((vec![line.beside(list(&all, |ratio| format!("{ratio:.2}")))], raw(&all)))
}

/// CPU time of a rejection: what is left of the whole when each proxied request has its usual cost.
fn refusal_cost(us: f64, proxied: f64, answered: u64, refused: u64) -> f64 {
    ((us - proxied * answered as f64) / refused.max(1) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_costs_what_requests_leave() {
        assert_eq!(refusal_cost(100_000.0, 20.0, 1_000, 8_000), 10.0);
        assert_eq!(refusal_cost(10_000.0, 20.0, 1_000, 8_000), 0.0);
    }
}
