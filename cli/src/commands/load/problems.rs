//! Reasons not to take a load's report for a measurement of the server: each is said first, and makes the exit code.

use std::fmt;

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::Nanos;
use leeward_load::LoadReport;
use leeward_load::report::RunEndReason;

use crate::demo::format::format_us;
use crate::failure::Failure;

/// A reason for which the server was not measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MeasurementProblem {
    /// The server, or the way to it, failed.
    Failed(String),
    /// This generator was too late.
    Late(String),
}

impl MeasurementProblem {
    /// The failure that the command ends with.
    pub(super) fn failure(self) -> Failure {
        match self {
            MeasurementProblem::Failed(words) => Failure::Runtime(anyhow!(words)),
            MeasurementProblem::Late(words) => Failure::Unmeasured(anyhow!(words)),
        }
    }
}

impl fmt::Display for MeasurementProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasurementProblem::Failed(words) | MeasurementProblem::Late(words) => f.write_str(words),
        }
    }
}

/// Reasons to doubt `report`, the weightiest first; `service` is what was asked for.
pub(super) fn find(report: &LoadReport, service: &str) -> Vec<MeasurementProblem> {
    let mut doubts = Vec::new();
    let (connections, totals) = (&report.connections, &report.totals);
    let reasons = connections.reasons.keys().filter(|reason| !reason.is_empty());
    let reasons = reasons.map(|reason| format!(": {reason}")).next().unwrap_or_default();
    if report.ending == RunEndReason::Disconnected {
        let after = format_us(Nanos(report.duration_ns).as_micros_f64());
        doubts.push(MeasurementProblem::Failed(format!("the server closed all connections after {after}{reasons}")));
    } else if connections.lost > 0 {
        let (lost, opened) = (connections.lost, connections.opened);
        doubts.push(MeasurementProblem::Failed(format!("{lost} of {opened} connections were lost{reasons}")));
    }
    if totals.completed == 0 && totals.failed > 0 {
        let codes: Vec<String> = report.failures.iter().map(|(code, count)| format!("{code} {count}")).collect();
        let named = Catalogue::builtin().find_by_requests(service).map_or("synthetic", |case| case.name());
        doubts.push(MeasurementProblem::Failed(format!(
            "every answer was a failure ({}): this load asks for `leeward serve --service {named}`",
            codes.join(", ")
        )));
    } else if totals.unfinished > 0 && totals.completed + totals.timed_out + totals.dropped == 0 {
        doubts.push(MeasurementProblem::Failed("the server answered nothing".into()));
    }
    if !report.adherence.kept {
        let lateness = &report.adherence.lateness;
        let late = |nanos: Nanos| format_us(nanos.as_micros_f64());
        doubts.push(MeasurementProblem::Late(format!(
            "the load generator did not keep its schedule: half of the requests left more than {} after their time, 1 in 100 \
             more than {}, with an objective of {}. That delay is this program's and not the server's; give it a CPU of its own \
             (--cpu, --busy), ask for less, or spread the load over several",
            late(lateness.p50),
            late(lateness.p99),
            Nanos(report.slo_ns),
        )));
    }
    doubts
}

/// The controller of this end, as far as the other end's welcome can tell whether it is the same.
pub(super) struct ControllerCheck {
    name: &'static str,
    gives_credits: bool,
}

impl ControllerCheck {
    /// The other end of `algorithm`.
    pub(super) fn new(algorithm: &Algorithm, params: &Params, environment: &Environment) -> Result<Self, Failure> {
        let server =
            algorithm.server(params, environment).map_err(|error| Failure::Input(anyhow!("--set: {error}")))?;
        Ok(ControllerCheck { name: algorithm.name, gives_credits: server.control.gauges().credit_pool.is_some() })
    }

    /// Warning of a server that runs another controller.
    pub(super) fn mismatch(&self, gives_credits: Option<bool>) -> Option<String> {
        let theirs = gives_credits.filter(|theirs| *theirs != self.gives_credits)?;
        let does = |gives: bool| if gives { "gives credits" } else { "gives no credits" };
        Some(format!(
            "the server runs another controller than this end: it {}, and `{}` {}; give both ends the same --admission",
            does(theirs),
            self.name,
            does(self.gives_credits),
        ))
    }
}
