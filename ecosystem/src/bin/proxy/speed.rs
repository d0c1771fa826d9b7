//! What the proxy itself costs: CPU time per request and per rejection, added latency, memory of
//! idle connections and of long bodies.

use crate::contender::{Contender, Front, Numbers, Setup};
use crate::line::{Bar, Line, median};
use crate::load::{Demand, Kind, LoadResult, Plan};
use crate::measure::{Bench, settle};
use crate::process::{Process, SERVICE_CPU, find, free_address};
use crate::sample::{Mode, Service};
use crate::transients::{list, numbers};
use crate::tuned::Tuned;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Contenders for comparison.
const PROXIES: [Contender; 4] = [Contender::Ours, Contender::Haproxy, Contender::Nginx, Contender::Envoy];
const OBJECTIVE: Duration = Duration::from_millis(50);
/// Requests per second of which most are refused.
const FLOOD: f64 = 8_000.0;
/// Idle connections of the row on memory.
const IDLE: usize = 10_000;

/// Number of MB that stands for a failure.
const FAILED: f64 = 1e9;

/// One number per contender.
type Numbered = Vec<(Contender, Option<f64>)>;

/// A service that costs next to nothing: nginx with 100 bytes, or axum where there is no nginx.
fn trivial(bench: &Bench) -> Result<Process> {
    let Some(nginx) = find("nginx") else { return bench.services.start_axum("empty", &bench.folder) };
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
fn forwarding(bench: &Bench, of: Contender, service: SocketAddr) -> Result<Front> {
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

fn of(numbers: &Numbered, contender: Contender) -> Option<f64> {
    numbers.iter().find(|(of, _)| *of == contender).and_then(|(_, value)| *value)
}

fn raw(numbers: &Numbered) -> Value {
    json!(numbers.iter().map(|(of, value)| (of.name().to_owned(), json!(value))).collect::<serde_json::Map<_, _>>())
}

/// CPU time per proxied request, in a closed loop of 64.
pub(crate) fn cost(bench: &mut Bench, _: &Tuned) -> Result<(Vec<Line>, Value)> {
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
pub(crate) fn latency(bench: &mut Bench, _: &Tuned) -> Result<(Vec<Line>, Value)> {
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

/// Memory with 10,000 idle connections, each of which has had a request.
pub(crate) fn idle(bench: &mut Bench, _: &Tuned) -> Result<(Vec<Line>, Value)> {
    let service = trivial(bench)?;
    let mut all = Vec::new();
    for contender in PROXIES {
        if contender.program().is_none() {
            all.push((contender, None));
            continue;
        }
        let front = forwarding(bench, contender, service.address)?;
        let mut connections = Vec::with_capacity(IDLE);
        for _ in 0..IDLE {
            let mut stream = TcpStream::connect(front.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: leeward\r\n\r\n")?;
            let mut bytes = [0; 1_024];
            let read = stream.read(&mut bytes)?;
            anyhow::ensure!(bytes[..read].starts_with(b"HTTP/1.1 200"), "{} does not answer", contender.name());
            connections.push(stream);
        }
        let process = front.process.as_ref().context("a proxy is a process")?;
        let (now, _) = process.memory_mb();
        eprintln!("    {}: {now:.0} MB with {} connections", contender.name(), connections.len());
        all.push((contender, Some(now)));
    }
    let title = format!("memory with {IDLE} idle connections");
    let line = Line::new(title, Bar::AtMost(100.0), of(&all, Contender::Ours), |mb| format!("{mb:.0} MB"));
    Ok((vec![line.beside(list(&all, |mb| format!("{mb:.0} MB")))], raw(&all)))
}

/// Memory that a long body adds, in each direction.
pub(crate) fn bodies(bench: &mut Bench, mb: usize) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start_axum("empty", &bench.folder)?;
    let (mut down, mut up) = (Vec::new(), Vec::new());
    for contender in PROXIES {
        if contender.program().is_none() {
            down.push((contender, None));
            up.push((contender, None));
            continue;
        }
        for (all, is_down) in [(&mut down, true), (&mut up, false)] {
            let front = forwarding(bench, contender, service.address)?;
            let process = front.process.as_ref().context("a proxy is a process")?;
            let (before, _) = process.memory_mb();
            let received = if is_down { download(front.address, mb) } else { upload(front.address, mb) };
            let received = received.unwrap_or_else(|error| {
                println!("{}: a long body fails: {error:#}", contender.name());
                0
            });
            if received < mb << 20 {
                all.push((contender, Some(FAILED)));
                continue;
            }
            let added = process.memory_mb().1 - before;
            eprintln!(
                "    {}: {mb} MB {}, {added:.1} MB more memory",
                contender.name(),
                if is_down { "down" } else { "up" }
            );
            all.push((contender, Some(added)));
        }
    }
    let lines = [("down", &down), ("up", &up)].map(|(way, all)| {
        let title = format!("memory added by a body of {mb} MB {way}");
        let show = |mb: f64| if mb < FAILED { format!("{mb:.1} MB") } else { "failed".into() };
        let line = Line::new(title, Bar::AtMost(16.0), of(all, Contender::Ours), show);
        line.beside(list(all, |mb| show(*mb)))
    });
    Ok((lines.to_vec(), json!({ "down": raw(&down), "up": raw(&up) })))
}

/// Bytes of a response until the connection's end, its head included.
fn download(address: SocketAddr, mb: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(format!("GET /-/large/{mb} HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\n\r\n").as_bytes())?;
    // However a proxy frames it, no less than the body comes.
    let (mut bytes, mut received) = (vec![0; 1 << 18], 0);
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(received),
            read => received += read,
        }
    }
}

/// Bytes that the service has received.
fn upload(address: SocketAddr, mb: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = mb << 20;
    let head =
        format!("POST /-/sink HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let piece = vec![b'x'; 1 << 18];
    for _ in 0..length / piece.len() {
        stream.write_all(&piece)?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let count =
        answer.rsplit("\r\n\r\n").next().and_then(|body| body.lines().find_map(|line| line.trim().parse().ok()));
    count.with_context(|| format!("no count in {answer}"))
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
