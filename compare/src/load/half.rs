//! Half load: an open loop with Poisson arrivals at half of the capacity without control.
//!
//! Service times are drawn before the run. The load generator is `leeward-load`, which implements
//! the clients of controllers.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate};
use leeward_load::{LoadConfig, LoadReport, Plan, Polling, Schedule};
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};

use super::{RTT, SLO, Times};

/// The papers' middle workload: exponential service times with a mean of 10 us.
const SERVICE: ServiceTime = ServiceTime::Exponential(Nanos::from_micros(10));

/// Capacity in requests per second of the server at `address`, without control.
///
/// # Errors
/// The server can't be loaded.
pub(crate) fn capacity(address: SocketAddr, connections: u32, times: Times) -> Result<f64> {
    let plan = Plan::Closed { connections, outstanding: 1, service: SERVICE, seed: 1, duration: span(times) };
    let report = run(address, "none", &plan, times)?;
    Ok(report.throughput_per_s)
}

/// Loads the server at `address` with `rate` requests per second, drawn from `seed`, as clients of
/// `controller`.
///
/// # Errors
/// The server can't be loaded, or connections were lost.
pub(crate) fn open_loop(
    address: SocketAddr,
    controller: &str,
    (connections, rate): (u32, f64),
    seed: u64,
    times: Times,
) -> Result<LoadReport> {
    let workload = Workload {
        clients: connections,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
        service: SERVICE,
    };
    let plan = Plan::Open(Schedule::draw(&workload, seed, span(times))?);
    run(address, controller, &plan, times)
}

fn run(address: SocketAddr, controller: &str, plan: &Plan, times: Times) -> Result<LoadReport> {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller)?;
    let params = algorithm.params(&[])?;
    // The client half of a controller does not know the number of the server's cores.
    let environment = Environment::new(1, RTT, SLO);
    let client = || (algorithm.build_client)(&params, &environment);
    let warmup = nanos(times.warmup);
    let config = LoadConfig { warmup, polling: Polling::Busy, ..LoadConfig::new(address, SLO) };
    let report = leeward_load::run(&config, plan, client, &AtomicBool::new(false), |_| {})?.report;
    ensure!(report.violations.is_empty(), "the load generator's books don't balance: {}", report.violations.join("; "));
    ensure!(report.connections.lost == 0, "{} connections were lost", report.connections.lost);
    Ok(report)
}

fn span(times: Times) -> Nanos {
    nanos(times.warmup + times.measured)
}

fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}
