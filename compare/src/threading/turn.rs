//! One measurement: a contender under a load, in a fresh process; the leaves keep running.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leeward_catalogue::Catalogue;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate};
use leeward_load::{LoadConfig, LoadReport, Plan, Polling, Schedule};
use leeward_rpc::generator::RequestGenerator;
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use serde::Serialize;

use crate::args::ThreadingArgs;
use crate::child::Server;
use crate::load::{RTT, Times};
use crate::servers::ServerKind;

/// Connections of the load.
const CONNECTIONS: u32 = 32;
/// Objective for the generator's counters; no verdict depends on it.
const SLO: Nanos = Nanos::from_millis(10);

/// Results at one load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// Share of the requests that got a complete response.
    pub(super) answered: f64,
    /// Median latency from the time at which a request was due, in microseconds.
    pub(super) p50_us: f64,
    /// 99th percentile of latency, in microseconds.
    pub(super) p99_us: f64,
    /// CPU time of the tier per request, in microseconds.
    pub(super) cpu_us: f64,
    /// Share of the requests that were sent late.
    pub(super) late: f64,
}

/// The leaves, and the settings that all measurements share.
pub(super) struct Bench {
    leaves: Vec<Server>,
    tier: usize,
    times: Times,
    ask: Arc<dyn RequestGenerator>,
}

impl Bench {
    /// Starts the leaves on the CPU of the load.
    ///
    /// # Errors
    /// A leaf does not start.
    pub(super) fn new(tier: usize, load: usize, args: &ThreadingArgs, times: Times) -> Result<Self> {
        ServiceTime::parse(&args.wait).context("--wait")?;
        let leaf = || Server::start_with(ServerKind::Leaf, load, &["--idle", "block", "--wait", &args.wait]);
        let leaves = (0..args.leaves).map(|_| leaf()).collect::<Result<Vec<_>>>()?;
        let requests = Catalogue::builtin().requests("tier")?;
        let registry = leeward_controllers::builtin();
        let target = leeward_services::definition::Target {
            address: leaves[0].address(),
            algorithm: registry.find("none")?,
            params: &leeward_core::params::Params::default(),
            rtt: RTT,
            slo: SLO,
            encryption: None,
        };
        let ask = requests.prepare(&target)?.context("a tier is asked for something")?;
        Ok(Bench { leaves, tier, times, ask })
    }

    fn start(&self, kind: ServerKind, name: &str) -> Result<Server> {
        let leaves: Vec<String> = self.leaves.iter().map(|leaf| leaf.address().to_string()).collect();
        let leaves = leaves.join(",");
        let mut more = vec!["--leaves", &leaves];
        if kind == ServerKind::Tier {
            more.extend(["--threading", name]);
        }
        Server::start_with(kind, self.tier, &more)
    }

    /// Measures requests per second in a closed loop.
    ///
    /// # Errors
    /// The contender does not start or does not answer.
    pub(super) fn capacity(&self, kind: ServerKind, name: &str, seed: u64) -> Result<f64> {
        let server = self.start(kind, name)?;
        let service = ServiceTime::Constant(Nanos::ZERO);
        let duration = nanos(self.times.warmup + self.times.measured);
        let plan = Plan::Closed { connections: CONNECTIONS, outstanding: 2, service, seed: seed + 1, duration };
        let report = self.run(&server, &plan)?;
        ensure!(report.throughput_per_s > 0.0, "nothing was answered");
        Ok(report.throughput_per_s)
    }

    /// Measures an open loop with Poisson arrivals.
    ///
    /// # Errors
    /// The contender does not start or does not answer.
    pub(super) fn point(&self, kind: ServerKind, name: &str, rate: f64, seed: u64) -> Result<Point> {
        let server = self.start(kind, name)?;
        let workload = Workload {
            clients: CONNECTIONS,
            arrivals: Arrivals::Poisson,
            shares: Shares::Equal,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
            service: ServiceTime::Constant(Nanos::ZERO),
        };
        // All contenders get the same requests.
        let span = nanos(self.times.warmup + self.times.measured);
        let plan = Plan::Open(Schedule::draw(&workload, seed + 1, span)?);
        let before = server.cpu_time()?;
        let report = self.run(&server, &plan)?;
        let cpu = server.cpu_time()?.saturating_sub(before);
        let counts = &report.totals;
        Ok(Point {
            answered: counts.completed as f64 / counts.offered.max(1) as f64,
            p50_us: report.latency.p50.as_micros_f64(),
            p99_us: report.latency.p99.as_micros_f64(),
            cpu_us: cpu.as_secs_f64() * 1e6 / counts.completed.max(1) as f64,
            late: report.adherence.late_share,
        })
    }

    fn run(&self, server: &Server, plan: &Plan) -> Result<LoadReport> {
        // Give the connections to the leaves time to open.
        std::thread::sleep(Duration::from_millis(200));
        let registry = leeward_controllers::builtin();
        let algorithm = registry.find("none")?;
        let params = algorithm.params(&[])?;
        let environment = Environment::new(1, RTT, SLO);
        let client = || (algorithm.build_client)(&params, &environment);
        let config = LoadConfig {
            warmup: nanos(self.times.warmup),
            polling: Polling::Hybrid,
            ask: Some(Arc::clone(&self.ask)),
            ..LoadConfig::new(server.address(), SLO)
        };
        let report = leeward_load::run(&config, plan, client, &AtomicBool::new(false), |_| {})?.report;
        ensure!(
            report.violations.is_empty(),
            "the load generator's books don't balance: {}",
            report.violations.join("; ")
        );
        ensure!(report.connections.lost == 0, "{} connections were lost", report.connections.lost);
        Ok(report)
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}
