//! Benefit and cost of cores that are granted and parked under bursts of load. The benefit is the
//! CPU time that the server leaves to others; the cost is the clients' latency. For comparison,
//! cores spin always, or sleep as soon as they can. Docs: `docs/cores.md`.
//!
//! `cargo run --release -p leeward-plant --example cores -- [rounds] [seconds]`
//!
//! Each run has a server with two cores in its own process, and 20 clients in this process, on the
//! same CPUs. With only two CPUs, the clients run on the time that the server's cores leave. A
//! server that spins on both CPUs pays for it with latency. The output therefore also has the
//! server's own response times, from the kernel's receive timestamp. They include waking up, and
//! exclude the clients' waiting. The configurations run in turn, so that other activity on the
//! machine affects all of them alike.
//!
//! A burst is 10 ms of requests of 50 us at 60 % of the capacity of two cores (Poisson). 40 ms of
//! silence follow.

use leeward_allocation::registry::find;
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate};
use leeward_load::{LoadConfig, Plan, Polling, Schedule, run};
use leeward_rpc::server::Server;
use leeward_runtime::IdlePolicy;
use leeward_services::synthetic::Synthetic;
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const CORES: usize = 2;
const SERVICE: Nanos = Nanos::from_micros(50);
const BURST: Nanos = Nanos::from_millis(10);
const PAUSE: Nanos = Nanos::from_millis(40);
/// Requests per second within a burst: 60 % of two cores at 50 us each, without the sockets' costs.
const RATE: Rate = Rate(24_000.0);

/// Name, allocator and idle policy of each configuration.
const SERVERS: [(&str, &str, &str); 6] = [
    ("spin", "", "spin"),
    ("delay", "delay", "50us"),
    ("delay, 1 ms", "delay:search=1ms", "1ms"),
    ("per-request", "per-request", "50us"),
    ("utilization", "utilization", "50us"),
    ("block", "", "block"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, allocator, idle] = &args[..]
        && serve == "serve"
    {
        return self::serve(allocator, idle);
    }
    let number = |index: usize, default: u64| args.get(index).map_or(Ok(default), |text| text.parse());
    let (rounds, seconds) = (number(0, 5)?, number(1, 4)?);
    let mut results: Vec<Vec<Measured>> = vec![Vec::new(); SERVERS.len()];
    for round in 0..rounds {
        for (index, (name, allocator, idle)) in SERVERS.iter().enumerate() {
            let measured = measure(allocator, idle, round, Nanos::from_secs(seconds))?;
            eprintln!("{round} {name}: {measured:?}");
            results[index].push(measured);
        }
    }
    println!("medians of {rounds} runs of {seconds} s (least to most)");
    println!(
        "{:12}  {:>22}  {:>22}  {:>22}  {:>22}",
        "server", "CPUs used", "idle given back", "p99, clients", "p99, server"
    );
    for ((name, ..), runs) in SERVERS.iter().zip(&results) {
        let summary = |value: fn(&Measured) -> f64, unit: &str| {
            let mut values: Vec<f64> = runs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            format!("{:.2}{unit} ({least:.2}..{most:.2})", values[values.len() / 2])
        };
        println!(
            "{name:12}  {:>22}  {:>22}  {:>22}  {:>22}",
            summary(|run| run.cpu, ""),
            summary(|run| 100.0 * run.given_back, "%"),
            summary(|run| run.p99_clients_us, "us"),
            summary(|run| run.p99_server_us, "us"),
        );
    }
    Ok(())
}

/// Results of one run.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "all of it is printed")]
struct Measured {
    /// CPU time of the server per elapsed time.
    cpu: f64,
    /// Cores busy with requests, as the server counts.
    busy: f64,
    /// Share of the cores' idle time that the server left to others.
    given_back: f64,
    p50_clients_us: f64,
    p99_clients_us: f64,
    p50_server_us: f64,
    p99_server_us: f64,
    completed: u64,
    late: u64,
    grants_per_s: f64,
}

fn measure(allocator: &str, idle: &str, seed: u64, duration: Nanos) -> Result<Measured, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", allocator, idle])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let measured = load(&mut child, seed, duration);
    // The server ends at the end of its input.
    drop(child.stdin.take());
    let status = child.wait()?;
    if !status.success() {
        return Err("the server has failed".into());
    }
    measured
}

fn load(child: &mut Child, seed: u64, duration: Nanos) -> Result<Measured, Box<dyn Error>> {
    let mut input = child.stdin.take().ok_or("no input")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut ask = |question: &str| -> Result<String, Box<dyn Error>> {
        writeln!(input, "{question}")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(line.trim().to_string())
    };
    let mut numbers = |question: &str| -> Result<Vec<u64>, Box<dyn Error>> {
        Ok(ask(question)?.split(' ').map(str::parse).collect::<Result<_, _>>()?)
    };
    let port = numbers("port")?[0];
    let mut config = LoadConfig::new(([127, 0, 0, 1], port as u16).into(), SLO);
    // The generator must not hold the CPUs that the server gives back.
    config.polling = Polling::Sleep;
    config.warmup = Nanos::from_millis(500);
    let mut demand = Vec::new();
    let mut from = Nanos::ZERO;
    while from < duration {
        demand.push(Segment { from, rate: RATE });
        demand.push(Segment { from: from + BURST, rate: Rate(0.0) });
        from += BURST + PAUSE;
    }
    let workload = Workload {
        clients: 20,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand,
        service: ServiceTime::Constant(SERVICE),
    };
    let plan = Plan::Open(Schedule::draw(&workload, seed, duration)?);
    let (algorithm, params) = admission()?;
    let environment = Environment::new(1, RTT, SLO);
    let client = || (algorithm.build_client)(&params, &environment);
    let (began, idle_before, cpu_before) = (Instant::now(), numbers("idle")?, cpu_ns(child)?);
    let recording = run(&config, &plan, client, &AtomicBool::new(false), |_| {})?;
    let (span, idle_after, cpu_after) = (began.elapsed(), numbers("idle")?, cpu_ns(child)?);
    let report = recording.report;
    if let Some(violation) = report.violations.first() {
        return Err(violation.clone().into());
    }
    let all = CORES as f64 * span.as_nanos() as f64;
    let cpu = (cpu_after - cpu_before) as f64;
    // Idle time of granted cores, and parked time.
    let idle = (idle_after[0] - idle_before[0] + idle_after[1] - idle_before[1]) as f64;
    Ok(Measured {
        cpu: cpu / span.as_nanos() as f64,
        busy: (all - idle) / span.as_nanos() as f64,
        given_back: (all - cpu) / idle,
        p50_clients_us: report.latency.p50.as_micros_f64(),
        p99_clients_us: report.latency.p99.as_micros_f64(),
        p50_server_us: report.server_sojourn.p50.as_micros_f64(),
        p99_server_us: report.server_sojourn.p99.as_micros_f64(),
        completed: report.totals.completed,
        late: report.totals.offered - report.totals.completed,
        grants_per_s: (idle_after[2] - idle_before[2]) as f64 / span.as_secs_f64(),
    })
}

/// CPU time of all threads of the server so far.
fn cpu_ns(child: &Child) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let numbers = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += numbers.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(sum)
}

/// Round trip and objective for the controller; the objective is so long that it rejects nothing
/// here.
const RTT: Nanos = Nanos::from_micros(50);
const SLO: Nanos = Nanos::from_millis(50);

fn admission() -> Result<(leeward_core::registry::Algorithm, Params), Box<dyn Error>> {
    let algorithm = leeward_controllers::builtin().find("breakwater")?.clone();
    let params = algorithm.params(&[])?;
    Ok((algorithm, params))
}

/// Runs the server's process: answers questions about itself until the pipe closes.
fn serve(allocator: &str, idle: &str) -> Result<(), Box<dyn Error>> {
    let (algorithm, params) = admission()?;
    let idle = match idle {
        "spin" => IdlePolicy::Spin,
        "block" => IdlePolicy::Block,
        span => IdlePolicy::Adaptive(leeward_core::units::parse_duration(span)?),
    };
    let mut builder = Server::builder().admission(&algorithm, params).objective(RTT, SLO).cores(CORES).idle(idle);
    if !allocator.is_empty() {
        let (name, rest) = allocator.split_once(':').unwrap_or((allocator, ""));
        let policy = find(name)?;
        let pairs = rest.split_once('=').map(|(name, value)| (name, RawParam::Text(value.into())));
        let params = policy.params(pairs.as_slice()).map_err(|error: ParamError| error.to_string())?;
        builder = builder.allocator(policy, params, 1);
    }
    let server = builder.start("127.0.0.1:0", Synthetic::new())?;
    for question in std::io::stdin().lines() {
        match question?.as_str() {
            "port" => println!("{}", server.address().port()),
            _ => {
                let usage = server.core_usage().unwrap_or_default();
                let parked: u64 = usage.parked.iter().map(|span| span.0).sum();
                println!("{} {parked} {}", server.idle().0, usage.grants);
            }
        }
    }
    server.stop()?;
    Ok(())
}
