//! Reasons for which a load's report does not measure the server. Each is printed first and sets
//! the exit code.

use std::fmt;

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::Nanos;
use leeward_lab::training::ServiceTier;
use leeward_load::LoadReport;
use leeward_load::report::RunEndReason;

use crate::demo::format::format_us;
use crate::failure::Failure;

/// Problem of a load generator that was too late.
const LATE: &str = "the load generator did not keep its schedule";

/// Reason for which the server was not measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MeasurementProblem {
    /// The server or the connection to it failed.
    Failed(String),
    /// The load generator was too late.
    Late(String),
}

impl MeasurementProblem {
    /// Failure with which the command ends. It is short where a report on stdout begins with the
    /// whole problem.
    pub(super) fn failure(self, is_in_report: bool) -> Failure {
        match self {
            MeasurementProblem::Failed(message) => Failure::Runtime(anyhow!(message)),
            MeasurementProblem::Late(_) if is_in_report => Failure::Unmeasured(anyhow!("not measured: {LATE}")),
            MeasurementProblem::Late(message) => Failure::Unmeasured(anyhow!(message)),
        }
    }
}

impl fmt::Display for MeasurementProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasurementProblem::Failed(message) | MeasurementProblem::Late(message) => f.write_str(message),
        }
    }
}

/// Says which service the load needs, unless the server runs it. `served` is the service that the
/// server runs, if it tells.
pub(super) fn other_service(requested: &str, served: Option<&str>) -> Option<String> {
    let named = Catalogue::builtin().find_by_requests(requested).map_or("synthetic", |case| case.name());
    let has_leaves = ServiceTier::is_known(named) || named == "tier";
    let needed = match (served == Some(named), has_leaves) {
        (true, false) => return None,
        (true, true) => "all of its leaves".into(),
        (false, true) => format!("`leeward serve --service {named}`, and all of its leaves"),
        (false, false) => format!("`leeward serve --service {named}`"),
    };
    let other = served.filter(|served| *served != named).map(|served| format!("; the server runs {served}"));
    Some(format!("this load needs {needed}{}", other.unwrap_or_default()))
}

/// Reasons to doubt `report`, the most serious first; `service` is the requested service, `served`
/// finds out which one the server runs.
pub(super) fn find(report: &LoadReport, service: &str, served: impl Fn() -> Option<String>) -> Vec<MeasurementProblem> {
    let mut doubts = Vec::new();
    let (connections, totals, measured) = (&report.connections, &report.totals, &report.measured);
    let reasons = connections.reasons.keys().filter(|reason| !reason.is_empty());
    let reasons = reasons.map(|reason| format!(": {reason}")).next().unwrap_or_default();
    if report.ending == RunEndReason::Disconnected {
        let after = format_us(Nanos(report.duration_ns).as_micros_f64());
        doubts.push(MeasurementProblem::Failed(format!("all connections were lost after {after}{reasons}")));
    } else if connections.lost > 0 {
        let (lost, opened) = (connections.lost, connections.opened);
        doubts.push(MeasurementProblem::Failed(format!("{lost} of {opened} connections were lost{reasons}")));
    }
    if totals.completed == 0 && totals.failed > 0 {
        let codes: Vec<String> = report.failures.iter().map(|(code, count)| format!("{code} {count}")).collect();
        // The server's words go to a terminal.
        let said = Some(report.failure_message.as_str()).filter(|message| !message.is_empty());
        let said = said.map(|message| format!("the server says `{}`", message.escape_debug()));
        let causes: Vec<String> = said.into_iter().chain(other_service(service, served().as_deref())).collect();
        let colon = if causes.is_empty() { "" } else { ": " };
        doubts.push(MeasurementProblem::Failed(format!(
            "every answer was a failure ({}){colon}{}",
            codes.join(", "),
            causes.join("; ")
        )));
    } else if totals.timed_out > 0 && totals.completed + totals.dropped == 0 {
        doubts.push(MeasurementProblem::Failed("no request was answered within --timeout".into()));
    } else if totals.unfinished > 0 && totals.completed + totals.dropped == 0 {
        doubts.push(MeasurementProblem::Failed("the server answered nothing".into()));
    } else if totals.offered > 0 && totals.too_long == totals.offered {
        let why = "every request is longer than the server accepts, or than a datagram";
        doubts.push(MeasurementProblem::Failed(format!("{why}: set a smaller --payload")));
    } else if measured.offered > 0 && measured.failed + report.latency_from_send.count + report.reject_delay.count == 0
    {
        doubts.push(MeasurementProblem::Failed("no request was answered after the warm-up".into()));
    }
    doubts.extend(find_lateness(report));
    doubts
}

/// The problem of a load generator that was too late.
pub(super) fn find_lateness(report: &LoadReport) -> Option<MeasurementProblem> {
    (!report.adherence.kept).then(|| {
        let lateness = &report.adherence.lateness;
        let late = |nanos: Nanos| format_us(nanos.as_micros_f64());
        MeasurementProblem::Late(format!(
            "{LATE}: half of the requests were sent more than {} late, 1 in 100 more than {} late, with an objective of {}. \
             This delay is the load generator's, not the server's: other programs, or too many requests, kept its CPU. Give \
             it a CPU of its own (--cpu, --busy), demand less, or take a longer objective (--slo)",
            late(lateness.p50),
            late(lateness.p99),
            Nanos(report.slo_ns),
        ))
    })
}

/// Compares this end's controller with the server's, as far as the server's welcome message allows.
pub(super) struct ControllerCheck {
    name: &'static str,
    gives_credits: bool,
}

impl ControllerCheck {
    /// Determines whether the server half of `algorithm` gives credits.
    pub(super) fn new(algorithm: &Algorithm, params: &Params, environment: &Environment) -> Result<Self, Failure> {
        let server =
            algorithm.server(params, environment).map_err(|error| Failure::Input(anyhow!("--set: {error}")))?;
        Ok(ControllerCheck { name: algorithm.name, gives_credits: server.control.gauges().credit_pool.is_some() })
    }

    /// Warning if the server runs another controller.
    pub(super) fn mismatch(&self, gives_credits: Option<bool>) -> Option<String> {
        let theirs = gives_credits.filter(|theirs| *theirs != self.gives_credits)?;
        let does = |gives: bool| if gives { "gives credits" } else { "gives no credits" };
        Some(format!(
            "server and client run different controllers: the server's {}, and `{}` {}; use the same --admission for both",
            does(theirs),
            self.name,
            does(self.gives_credits),
        ))
    }
}
