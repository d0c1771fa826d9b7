//! A scene's runs, and what each controller reached in it.

use super::cases::{BenchmarkCase, TUNED_SUFFIX};
use crate::error::RunError;
use crate::options::Options;
use crate::run::run;
use leeward_core::registry::Registry;
use leeward_outcome::results::PointRow;
use leeward_sim::oracle;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// A point of a scene: one workload, met by all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the scene.
    pub scene: String,
    /// Its workload in words.
    pub workload: String,
    /// The objective, µs.
    pub slo_us: f64,
    /// Goodput of the oracle, requests per second.
    pub oracle_rps: f64,
    /// The 99th percentile under it, µs.
    pub oracle_p99_us: f64,
    /// Everybody else.
    pub entries: Vec<ControllerResult>,
}

/// Result of one controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerResult {
    /// Name of the algorithm, or the label of one that was tuned for the scene.
    pub label: String,
    /// Whether it was tuned for the scene.
    pub is_tuned: bool,
    /// Goodput, requests per second.
    pub goodput_rps: f64,
    /// The 99th percentile of responses, µs.
    pub p99_us: f64,
}

/// Runs a scene.
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
    let one = |bound: &PointRow| CaseResult {
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
            })
            .collect(),
    };
    Ok(results.points.iter().filter(is_oracle).map(one).collect())
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
