//! A scene's runs, and what each controller reached in it.

use super::scenes::{Scene, TUNED};
use crate::error::RunError;
use crate::options::Options;
use crate::run::run;
use leeward_core::registry::Registry;
use leeward_outcome::results::Point;
use leeward_sim::oracle;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// A point of a scene: one workload, met by all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Match {
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
    pub entries: Vec<Entry>,
}

/// Result of one controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
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
pub fn play(
    scene: &Scene,
    registry: &Registry,
    options: &Options,
    cancel: &AtomicBool,
) -> Result<Vec<Match>, RunError> {
    let results = run(&scene.scenario, registry, options, &|_| {}, cancel)?;
    let is_oracle = |point: &&Point| point.run.controller == oracle::ALGORITHM.name;
    let one = |bound: &Point| Match {
        scene: scene.name.clone(),
        workload: words(bound),
        slo_us: bound.slo_us,
        oracle_rps: bound.goodput_rps,
        oracle_p99_us: bound.p99_us,
        entries: results
            .points
            .iter()
            .filter(|point| point.workload == bound.workload && point.slo_us == bound.slo_us && !is_oracle(point))
            .map(|point| Entry {
                label: point.run.label.clone(),
                is_tuned: point.run.label.ends_with(TUNED),
                goodput_rps: point.goodput_rps,
                p99_us: point.p99_us,
            })
            .collect(),
    };
    Ok(results.points.iter().filter(is_oracle).map(one).collect())
}

fn words(point: &Point) -> String {
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
