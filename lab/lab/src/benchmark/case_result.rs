//! The runs of a benchmark case, and each controller's result.

use super::cases::{BenchmarkCase, TUNED_SUFFIX};
use crate::error::RunError;
use crate::options::Options;
use crate::run::run;
use leeward_core::registry::Registry;
use leeward_outcome::results::PointRow;
use leeward_sim::oracle;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// Results of a point of a case: one workload, the same for all controllers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the case.
    pub scene: String,
    /// The workload as text.
    pub workload: String,
    /// Latency objective, µs.
    pub slo_us: f64,
    /// Goodput of the oracle, requests per second.
    pub oracle_rps: f64,
    /// 99th percentile of the oracle, µs.
    pub oracle_p99_us: f64,
    /// Results of all other controllers.
    pub entries: Vec<ControllerResult>,
}

/// Result of one controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerResult {
    /// Name of the algorithm, or label of a variant tuned for the case.
    pub label: String,
    /// Whether the variant was tuned for the case.
    pub is_tuned: bool,
    /// Goodput, requests per second.
    pub goodput_rps: f64,
    /// 99th percentile of responses, µs.
    pub p99_us: f64,
    /// Whether the run had settled when it was measured.
    #[serde(default = "before_runs_settled")]
    pub settled: bool,
}

/// Earlier files have runs with fixed times, which nobody judged.
fn before_runs_settled() -> bool {
    true
}

/// Runs a case.
///
/// # Errors
/// As [`run`].
pub fn run_case(
    scene: &BenchmarkCase,
    registry: &Registry,
    options: &Options,
    cancel: &AtomicBool,
) -> Result<Vec<CaseResult>, RunError> {
    let results = run(&scene.scenario, registry, options, &|_| {}, cancel)?;
    let is_oracle = |point: &&PointRow| point.run.controller == oracle::ALGORITHM.name;
    let case_result = |bound: &PointRow| CaseResult {
        scene: scene.name.clone(),
        workload: describe_workload(bound),
        slo_us: bound.slo_us,
        oracle_rps: bound.goodput_rps,
        oracle_p99_us: bound.p99_us,
        entries: results
            .points
            .iter()
            .filter(|point| point.workload == bound.workload && point.slo_us == bound.slo_us && !is_oracle(point))
            .map(|point| ControllerResult {
                label: point.run.label.clone(),
                is_tuned: point.run.label.ends_with(TUNED_SUFFIX),
                goodput_rps: point.goodput_rps,
                p99_us: point.p99_us,
                settled: point.settled != Some(false),
            })
            .collect(),
    };
    Ok(results.points.iter().filter(is_oracle).map(case_result).collect())
}

fn describe_workload(point: &PointRow) -> String {
    let workload = &point.workload;
    let named = |name: &str, value: Option<f64>| value.map_or(String::new(), |value| format!(", {name} {value}"));
    format!(
        "{}, {:.2} x, {} clients{}{}",
        workload.service,
        workload.demand_ratio,
        workload.clients,
        named("p", workload.p),
        named("r", workload.r)
    )
}
