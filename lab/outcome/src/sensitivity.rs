//! Verdicts on claims in worlds that differ in one invented thing from the scenario's own: what `leeward verdicts --sensitivity` keeps. Never here:
//! the worlds, and the judging.

use crate::results::Verdict;
use serde::{Deserialize, Serialize};

/// Claims of many scenarios in all worlds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Command that made them.
    pub command: String,
    /// Scenarios, in the order of the papers' figures.
    pub scenarios: Vec<ScenarioSensitivity>,
}

/// Claims of one scenario in all worlds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioSensitivity {
    /// The scenario's id.
    pub id: String,
    /// Seeds per point.
    pub seeds: u32,
    /// Whether its `[quick]` section applied.
    pub quick: bool,
    /// Names of the worlds besides its own.
    pub worlds: Vec<String>,
    /// The claims.
    pub claims: Vec<ClaimSensitivity>,
}

/// A claim in all worlds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimSensitivity {
    /// Its id in the scenario.
    pub id: String,
    /// The claim in words.
    pub text: String,
    /// Whether no paper makes it.
    pub ours: bool,
    /// In the scenario's own world.
    pub own: MeasuredVerdict,
    /// In each other world; `None` where that has nothing to change.
    pub others: Vec<Option<MeasuredVerdict>>,
}

/// A verdict with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredVerdict {
    /// The verdict.
    pub verdict: Verdict,
    /// Our measurement, with unit and interval.
    pub measured: String,
}
