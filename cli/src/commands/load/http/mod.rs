//! `leeward load --http` and `--grpc`: load on services that speak HTTP.
//!
//! - `args`: the flags. `problems`: reasons to doubt the report. `report`: what the report says
//!   besides that of Leeward's protocol.

mod args;
mod problems;
mod report;

use anyhow::anyhow;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Rate};
use leeward_http_load::{HttpLoadError, run, run_scaled};
use leeward_load::{Polling, Schedule, address};
use leeward_rpc::wire::ServerProtocol;
use leeward_workload::ServiceTime;
use std::time::Duration;

use super::{LoadArgs, LoadSpec, check_outputs, load_spec, print_results, timeout, warmup};
use crate::admission;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};

pub(crate) use args::HttpArgs;

/// Time limit for a server to show its protocol.
const DETECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command for an HTTP service.
pub(super) fn load(args: &LoadArgs) -> Result<(), Failure> {
    let slo = admission::parse_span("--slo", &args.admission.slo)?;
    let budget = match &args.budget {
        Some(budget) => Budget::new(admission::parse_span("--budget", budget)?),
        None => Budget::UNLIMITED,
    };
    let spec = load_spec(args, ServiceTime::Constant(Nanos::ZERO))?;
    check_outputs(args)?;
    let defaults = args.http.config(&args.tls, slo, budget)?;
    let config = leeward_http_load::HttpLoadConfig {
        connections: Some(args.clients),
        warmup: warmup(args)?,
        timeout: timeout(args)?.or(defaults.timeout),
        polling: if args.busy { Polling::Busy } else { Polling::Hybrid },
        cpu: args.cpu,
        ..defaults
    };
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let expected = if config.tls.is_some() { ServerProtocol::Tls } else { ServerProtocol::Http };
    let host = config.targets.first().map(|target| target.endpoint.host_and_port()).unwrap_or_default();
    // Adds the protocol that the first target speaks, if it is another one.
    let with_protocol = |problem: String| match address::resolve(&host).ok().and_then(|found| found.first().copied()) {
        Some(found) => address::with_protocol(problem, found, expected, DETECT_TIMEOUT),
        None => problem,
    };
    let failed = |error: HttpLoadError| failure(error, &with_protocol);
    let (capacity, results) = match spec {
        LoadSpec::Plan(plan) => (None, run(&config, &plan, interrupt.flag(), |_| {}).map_err(failed)?),
        LoadSpec::Multiple { ratio, closed, workload, duration } => {
            let mut capacity = Rate(0.0);
            let schedule = |throughput: Rate| {
                capacity = throughput;
                Schedule::draw(&workload(Rate(ratio * capacity.0)), args.seed, duration)
            };
            let scaled = run_scaled(&config, &closed, schedule, interrupt.flag(), |_| {}).map_err(failed)?;
            (Some((ratio, capacity.0)), scaled.results)
        }
    };
    let doubts = problems::find(&results.report, config.version, &with_protocol);
    let details = report::details(&results.report);
    print_results(args, &results, capacity, doubts, &details)
}

/// Failure of a run without a report.
fn failure(error: HttpLoadError, with_protocol: &impl Fn(String) -> String) -> Failure {
    match error {
        HttpLoadError::Stopped => Failure::Interrupted,
        HttpLoadError::Config(_) | HttpLoadError::Schedule(_) | HttpLoadError::Pin(_) => Failure::Input(anyhow!(error)),
        HttpLoadError::Connect { .. } => Failure::Runtime(anyhow!(with_protocol(error.to_string()))),
        _ => Failure::Runtime(anyhow!(error.to_string())),
    }
}
