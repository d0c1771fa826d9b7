//! `leeward load`: requests for a server, and what came of each.

use anyhow::{Context, anyhow};
use leeward_catalogue::Catalogue;
use leeward_control::budget::Budget;
use leeward_control::registry::Environment;
use leeward_control::units::{Nanos, Rate, parse_duration, parse_scaled};
use leeward_load::report::{Ending, LoadReport, Percentiles};
use leeward_load::{LoadConfig, LoadError, Plan, Polling, Schedule, output, run, run_scaled};
use leeward_services::case::Target;
use leeward_workload::{Arrivals, Segment, Service, Shares, Workload};
use std::net::{SocketAddr, ToSocketAddrs};

use crate::args::LoadArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::{admission, service, stdout};

use super::target;

/// The command.
pub(crate) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::span("--slo", &args.admission.slo)?;
    let rtt = admission::span("--rtt", &args.admission.rtt)?;
    let address = address(&args.address)?;
    let budget = match &args.budget {
        Some(budget) => Budget::of(admission::span("--budget", budget)?),
        None => Budget::UNLIMITED,
    };
    let requests =
        Catalogue::builtin().requests(&args.service).map_err(|error| Failure::Input(anyhow!("--service: {error}")))?;
    let server = Target { address, algorithm: &algorithm, params: &params, rtt, slo };
    let config = LoadConfig {
        budget,
        ask: requests.prepare(&server).map_err(service::failure)?,
        warmup: parse_duration(&args.warmup).map_err(|error| Failure::Input(anyhow!("--warmup: {error}")))?,
        payload: args.payload as usize,
        polling: if args.busy { Polling::Busy } else { Polling::Hybrid },
        cpu: args.cpu,
        ..LoadConfig::new(address, slo)
    };
    // A service that is not synthetic takes as long as it takes.
    let times = requests.times().cloned().unwrap_or(Service::Constant(Nanos::from_micros(1)));
    let wish = wish(args, times)?;
    if let Some(path) = &args.hgrm {
        target::check_file("--hgrm", path)?;
    }
    // The client side of a controller knows nothing of the server's cores.
    let environment = Environment::new(1, rtt, slo);
    let interrupt = Interrupt::listen()?;
    let client = || (algorithm.build_client)(&params, &environment);
    let (capacity, recording) = match wish {
        Wish::Plan(plan) => (None, run(&config, &plan, client, interrupt.flag(), |_| {}).map_err(failure)?),
        Wish::Multiple { ratio, closed, workload, duration } => {
            let schedule = |capacity: Rate| Schedule::draw(&workload(Rate(ratio * capacity.0)), args.seed, duration);
            let scaled = run_scaled(&config, &closed, schedule, client, interrupt.flag(), |_| {}).map_err(failure)?;
            (Some((ratio, scaled.measured.throughput_per_s)), scaled.recording)
        }
    };
    if let Some(path) = &args.hgrm {
        let mut bytes = Vec::new();
        output::write_hgrm(recording.latency.histogram(), &mut bytes).context("writing").map_err(Failure::Runtime)?;
        target::write(path, &String::from_utf8_lossy(&bytes))?;
    }
    let report = &recording.report;
    stdout::print(&if args.json { json(report, capacity)? } else { text(report, capacity) })?;
    match report.violations.first() {
        Some(violation) => Err(Failure::Runtime(anyhow!("the books do not balance, please report this: {violation}"))),
        None => Ok(()),
    }
}

/// How long the capacity is measured, a quarter of it without counting.
const MEASURING: Nanos = Nanos::from_millis(1_000);

/// What is asked for.
enum Wish<W> {
    /// This.
    Plan(Plan),
    /// So many times what the server can do.
    Multiple { ratio: f64, closed: Plan, workload: W, duration: Nanos },
}

fn wish(args: &LoadArgs, service: Service) -> Result<Wish<impl Fn(Rate) -> Workload>, Failure> {
    let duration = admission::span("--duration", &args.duration)?;
    if let Some(outstanding) = args.closed {
        let (connections, seed) = (args.clients, args.seed);
        return Ok(Wish::Plan(Plan::Closed { connections, outstanding, service, seed, duration }));
    }
    let (connections, seed) = (args.clients, args.seed);
    let closed = Plan::Closed { connections, outstanding: 1, service: service.clone(), seed, duration: MEASURING };
    let workload = move |rate| Workload {
        clients: connections,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate }],
        service: service.clone(),
    };
    if let Some(ratio) = args.demand.strip_suffix('x') {
        let ratio = ratio.parse().ok().filter(|ratio| (0.01..=100.0).contains(ratio));
        let wrong = || Failure::Input(anyhow!("--demand `{}`: a multiple lies between 0.01x and 100x", args.demand));
        let ratio = ratio.ok_or_else(wrong)?;
        return Ok(Wish::Multiple { ratio, closed, workload, duration });
    }
    let rate = parse_scaled(&args.demand).map_err(|error| {
        Failure::Input(anyhow!("--demand: {error}, or a multiple of what the server can do, such as `1.4x`"))
    })?;
    let schedule =
        Schedule::draw(&workload(Rate(rate)), seed, duration).map_err(|error| Failure::Input(anyhow!("{error}")))?;
    if schedule.requests().is_empty() {
        return Err(Failure::Input(anyhow!("--demand {}: no request is due within {duration}", args.demand)));
    }
    Ok(Wish::Plan(Plan::Open(schedule)))
}

/// The report as one object, with the capacity if that was measured.
fn json(report: &LoadReport, capacity: Option<(f64, f64)>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    output::write_json(report, &mut bytes).context("writing").map_err(Failure::Runtime)?;
    let text = String::from_utf8_lossy(&bytes);
    let Some((ratio, capacity)) = capacity else { return Ok(text.trim_end().into()) };
    let mut value: serde_json::Value = serde_json::from_str(&text).context("the report").map_err(Failure::Runtime)?;
    value["demand_ratio"] = ratio.into();
    value["capacity_per_s"] = capacity.into();
    serde_json::to_string(&value).context("the report").map_err(Failure::Runtime)
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    resolved.ok_or_else(|| Failure::Input(anyhow!("`{text}` is no address; expected one such as 127.0.0.1:7117")))
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Stopped => Failure::Interrupted,
        LoadError::Client(_) | LoadError::Config(_) | LoadError::Schedule(_) | LoadError::Pin { .. } => {
            Failure::Input(anyhow!(error))
        }
        _ => Failure::Runtime(anyhow!(error.to_string())),
    }
}

/// What a person wants to know first, then how much of it to believe.
fn text(report: &LoadReport, capacity: Option<(f64, f64)>) -> String {
    let measured = &report.measured;
    let latency = |name: &str, spans: &Percentiles| {
        let us = |ns: u64| ns as f64 / 1e3;
        let (p50, p99, p999) = (us(spans.p50_ns), us(spans.p99_ns), us(spans.p999_ns));
        format!("{name:<22} p50 {p50:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us\n")
    };
    let ended_at_client = measured.expired + measured.overflowed + measured.throttled;
    let mut text = String::new();
    if let Some((ratio, capacity)) = capacity {
        text += &format!(
            "demand                 {:.1} k/s: {ratio} x {:.1} k/s, answered in {MEASURING} of closed loop before\n",
            ratio * capacity / 1e3,
            capacity / 1e3,
        );
    }
    text += &format!(
        "goodput                {:.1} k/s in time of {:.1} k/s answered; objective {}\n",
        report.goodput_per_s / 1e3,
        report.throughput_per_s / 1e3,
        Nanos(report.slo_ns),
    );
    text += &latency("latency", &report.latency);
    text += &latency("  without its own wait", &report.latency_from_send);
    text += &format!(
        "other ends             {} dropped, {ended_at_client} ended at the client, {} failed, {} lost\n",
        measured.dropped,
        measured.failed,
        measured.disconnected + measured.unsent,
    );
    // What never ended has no latency: without these lines a server that answers only what is easy would look fast.
    let totals = &report.totals;
    if totals.too_long > 0 {
        text += &format!("too long               {} not sent: the server takes shorter payloads\n", totals.too_long);
    }
    if totals.unfinished > 0 {
        text += &format!("never answered         {} when the wait for the last answers was over\n", totals.unfinished);
    }
    let cut = match report.ending {
        Ending::Stopped => Some("stopped"),
        Ending::Disconnected => Some("no connection was left"),
        _ => None,
    };
    if let Some(cut) = cut {
        text += &format!("cut short              {cut} after {}\n", Nanos(report.duration_ns));
    }
    text += &format!(
        "schedule               {:.2} % issued more than {} late; {} connections, {} lost",
        report.adherence.late_share * 100.0,
        Nanos(report.adherence.late_after_ns),
        report.connections.opened,
        report.connections.lost,
    );
    text
}
