//! The results of a scenario: what `leeward run --json` prints, what lies in a results folder, what the report draws.
//! The schema is documented in `docs/results.md` and stable: fields are added, never renamed. The rows of its tables are in
//! `rows`; reading and writing folders is the lab's.

mod rows;

pub use rows::{KindRow, LockRow, Machine, PointRow, ReplicaRow, RunKey, ServiceRow, ShiftRow, WindowRow, WorkloadKey};

use serde::{Deserialize, Serialize};

/// Results of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this schema.
    pub schema: u32,
    /// The scenario's id.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// The paper and figure it redraws.
    pub source: String,
    /// Purpose of the scenario and how to read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `sim` or `real`.
    pub plant: String,
    /// The base seed; each point carries its own.
    pub seed: u64,
    /// Whether this was a `--quick` run.
    pub quick: bool,
    /// `--set` overrides, as given.
    pub overrides: Vec<String>,
    /// The plots the scenario asks for.
    pub plots: Vec<Plot>,
    /// The machine, for runs of the real plant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// Points, one per controller variant, demand, client count, service and seed.
    pub points: Vec<PointRow>,
    /// Time series, for scenarios that ask for them.
    pub windows: Vec<WindowRow>,
    /// Reports of each shift of demand, for scenarios with shifting demand.
    pub shifts: Vec<ShiftRow>,
    /// Reports of each lock of each point, for applications with locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockRow>,
    /// Reports of each server of each point, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaRow>,
    /// Reports of each service of each point, for graphs of services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceRow>,
    /// Reports of each kind of requests of each point, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindRow>,
    /// The papers' claims and what we measured.
    pub claims: Vec<Claim>,
    /// Reasons not to take runs of the real plant for measurements, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

impl Results {
    /// Whether the claims are no paper's: the scenario names no source, or says that it is ours.
    pub fn has_own_claims(&self) -> bool {
        self.source.is_empty() || self.source.starts_with("ours")
    }
}

/// A plot of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plot {
    /// Heading.
    pub title: String,
    /// `points`, `windows`, `locks` or `replicas`.
    pub table: String,
    /// A numeric field of the table, or `label` for one group of bars per variant.
    pub x: String,
    /// A numeric field of the table.
    pub y: String,
    /// Field whose distinct values are one curve each.
    pub series: String,
    /// `field=value` filters, all of which must hold.
    pub only: Vec<String>,
    /// `linear` or `log`.
    pub x_scale: String,
    /// `linear` or `log`.
    pub y_scale: String,
    /// `line`, `bars` or `scatter`.
    pub kind: String,
}

/// A claim of a paper, and what we measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Short id, unique in its scenario.
    pub id: String,
    /// The claim in words.
    pub text: String,
    /// Measurement of the paper, in its words or numbers.
    pub paper: String,
    /// Our measurement, with unit; min–max over seeds where there are several.
    pub measured: String,
    /// The measured number itself; absent when it could not be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Interval in which the median over the seeds lies with 95 % probability; absent for a single seed, or where it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Values accepted as reproduced, in words, such as `at least 1.04`.
    pub accepted: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why not, or what differs, as found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured within what is accepted.
    Reproduced,
    /// Measured outside of it.
    NotReproduced,
    /// The seeds leave it open: their interval reaches across a bound of what is accepted.
    Undecided,
    /// This run did not measure it (another plant, or a point left out by `--quick`).
    NotApplicable,
}

impl Verdict {
    /// The verdict as a reader is told it.
    pub const fn label(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Undecided => "undecided",
            Verdict::NotApplicable => "not measured",
        }
    }
}
