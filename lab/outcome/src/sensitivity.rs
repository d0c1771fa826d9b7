//! Verdicts on claims under perturbations: worlds that differ from the scenario's own in one
//! invented parameter.
//!
//! `leeward verdicts --sensitivity` stores them. Does not contain the worlds, or the judging.

use crate::results::Verdict;
use serde::{Deserialize, Serialize};

/// Claims of many scenarios in all worlds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Command that produced them.
    pub command: String,
    /// Scenarios, in the order of the papers' figures.
    pub scenarios: Vec<ScenarioSensitivity>,
}

/// Claims of one scenario in all worlds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioSensitivity {
    /// Id of the scenario.
    pub id: String,
    /// Seeds per point.
    pub seeds: u32,
    /// Whether the scenario's `[quick]` section applied.
    pub quick: bool,
    /// Names of the worlds other than the scenario's own.
    pub worlds: Vec<String>,
    /// The claims.
    pub claims: Vec<ClaimSensitivity>,
}

/// A claim in all worlds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimSensitivity {
    /// Id in the scenario.
    pub id: String,
    /// The claim as text.
    pub text: String,
    /// Whether the claim is ours, not a paper's.
    pub ours: bool,
    /// Verdict in the scenario's own world.
    pub own: MeasuredVerdict,
    /// Verdict in each other world; `None` if the perturbation changes nothing.
    pub others: Vec<Option<MeasuredVerdict>>,
}

/// A verdict with its measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredVerdict {
    /// The verdict.
    pub verdict: Verdict,
    /// Our measurement, with unit and interval.
    pub measured: String,
}
