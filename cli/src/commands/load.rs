//! `leeward load`: requests for a server, and what came of each.

use anyhow::{Context, anyhow};
use leeward_control::registry::Environment;
use leeward_control::units::{Nanos, Rate, parse_scaled};
use leeward_load::report::{LoadReport, Percentiles};
use leeward_load::{LoadConfig, LoadError, Plan, Polling, Schedule, output, run};
use leeward_workload::{Arrivals, Segment, Service, Shares, Workload};
use std::net::{SocketAddr, ToSocketAddrs};

use crate::args::LoadArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::{admission, stdout};

/// The command.
pub(crate) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::span("--slo", &args.admission.slo)?;
    let rtt = admission::span("--rtt", &args.admission.rtt)?;
    let config = LoadConfig {
        warmup: admission::span("--warmup", &args.warmup)?,
        polling: if args.busy { Polling::Busy } else { Polling::Hybrid },
        cpu: args.cpu,
        ..LoadConfig::new(address(&args.address)?, slo)
    };
    let plan = plan(args)?;
    // The client side of a controller knows nothing of the server's cores.
    let environment = Environment::new(1, rtt, slo);
    let interrupt = Interrupt::listen()?;
    let client = || (algorithm.build_client)(&params, &environment);
    let recording = run(&config, &plan, client, interrupt.flag(), |_| {}).map_err(failure)?;
    if let Some(path) = &args.hgrm {
        let mut bytes = Vec::new();
        output::write_hgrm(recording.latency.histogram(), &mut bytes).context("writing").map_err(Failure::Runtime)?;
        std::fs::write(path, bytes).with_context(|| path.display().to_string()).map_err(Failure::Runtime)?;
    }
    if args.json {
        let mut bytes = Vec::new();
        output::write_json(&recording.report, &mut bytes).context("writing").map_err(Failure::Runtime)?;
        return stdout::print(String::from_utf8_lossy(&bytes).trim_end());
    }
    stdout::print(&text(&recording.report))
}

fn plan(args: &LoadArgs) -> Result<Plan, Failure> {
    let duration = admission::span("--duration", &args.duration)?;
    let service = Service::parse(&args.service).map_err(|error| Failure::Input(anyhow!("--service: {error}")))?;
    if let Some(outstanding) = args.closed {
        let (connections, seed) = (args.clients, args.seed);
        return Ok(Plan::Closed { connections, outstanding, service, seed, duration });
    }
    let rate = parse_scaled(&args.demand).map_err(|error| Failure::Input(anyhow!("--demand: {error}")))?;
    let workload = Workload {
        clients: args.clients,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
        service,
    };
    let schedule = Schedule::draw(&workload, args.seed, duration);
    schedule.map(Plan::Open).map_err(|error| Failure::Input(anyhow!("{error}")))
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    resolved.ok_or_else(|| Failure::Input(anyhow!("`{text}` is no address; expected one such as 127.0.0.1:7117")))
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Stopped => Failure::Interrupted,
        LoadError::Client(_) | LoadError::Config(_) => Failure::Input(anyhow!(error)),
        _ => Failure::Runtime(anyhow!(error.to_string())),
    }
}

/// What a person wants to know first, then how much of it to believe.
fn text(report: &LoadReport) -> String {
    let measured = &report.measured;
    let latency = |name: &str, spans: &Percentiles| {
        let us = |ns: u64| ns as f64 / 1e3;
        let (p50, p99, p999) = (us(spans.p50_ns), us(spans.p99_ns), us(spans.p999_ns));
        format!("{name:<22} p50 {p50:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us\n")
    };
    let ended_at_client = measured.expired + measured.overflowed + measured.throttled;
    let mut text = format!(
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
    text += &format!(
        "schedule               {:.2} % issued more than {} late; {} connections, {} lost",
        report.adherence.late_share * 100.0,
        Nanos(report.adherence.late_after_ns),
        report.connections.opened,
        report.connections.lost,
    );
    for violation in &report.violations {
        text += &format!("\nDEFECT: {violation}");
    }
    text
}
