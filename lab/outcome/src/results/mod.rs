//! The results of a scenario: printed by `leeward run --json`, stored in a results folder, and
//! drawn by the report.
//!
//! The schema is documented in `docs/results/fields.md` and stable: fields are added, never
//! renamed. The tables' rows are in `rows`; the lab reads and writes folders.

mod rows;

pub use rows::{KindRow, LockRow, Machine, PointRow, ReplicaRow, RunKey, ServiceRow, ShiftRow, WindowRow, WorkloadKey};

use serde::{Deserialize, Serialize};

/// Results of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this schema.
    pub schema: u32,
    /// Id of the scenario.
    pub scenario: String,
    /// Title of the scenario.
    pub title: String,
    /// Paper and figure that it reproduces.
    pub source: String,
    /// Purpose of the scenario, with notes for the reader.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `sim` or `real`.
    pub plant: String,
    /// Base seed; each point has its own.
    pub seed: u64,
    /// Whether this was a `--quick` run.
    pub quick: bool,
    /// `--set` overrides, as given.
    pub overrides: Vec<String>,
    /// Plots that the scenario asks for.
    pub plots: Vec<Plot>,
    /// Machine, for runs of the real plant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// Points, one per controller variant, demand, client count, service and seed.
    pub points: Vec<PointRow>,
    /// Time series, for scenarios that ask for them.
    pub windows: Vec<WindowRow>,
    /// Results of each shift of demand, for scenarios with shifting demand.
    pub shifts: Vec<ShiftRow>,
    /// Results of each lock of each point, for applications with locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockRow>,
    /// Results of each server of each point, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaRow>,
    /// Results of each service of each point, for graphs of services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceRow>,
    /// Results of each kind of requests of each point, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindRow>,
    /// The papers' claims with our measurements.
    pub claims: Vec<Claim>,
    /// Reasons not to trust runs of the real plant as measurements, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

impl Results {
    /// Whether the claims are ours: the scenario names no source, or a source that begins with
    /// `ours`.
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
    /// Field with one curve per distinct value.
    pub series: String,
    /// `field=value` filters that must all hold.
    pub only: Vec<String>,
    /// `linear` or `log`.
    pub x_scale: String,
    /// `linear` or `log`.
    pub y_scale: String,
    /// `line`, `bars` or `scatter`.
    pub kind: String,
}

/// A claim of a paper, with our measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Short id, unique in the scenario.
    pub id: String,
    /// The claim in words.
    pub text: String,
    /// Measurement of the paper, in its words or numbers.
    pub paper: String,
    /// Our measurement, with unit; min–max over seeds if there are several.
    pub measured: String,
    /// Measured number; absent if it could not be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Interval that contains the median over the seeds with 95 % probability; absent for a single
    /// seed, or without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Accepted values, as text such as `at least 1.04`.
    pub accepted: String,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Reason of a failure, or observed difference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// When the variants that the claim compares had settled, a row per variant; empty for results
    /// of older versions, and of the real plant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settling: Vec<Settling>,
    /// Compared variants with a run of the real plant in which the load generator was late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<String>,
}

impl Claim {
    /// When each compared variant had settled, for readers; empty without compared variants.
    pub fn settled_after(&self) -> String {
        let side = |side: &Settling| {
            let bound = if side.settled { "" } else { "did not settle in " };
            let apart = match side.drifting {
                1 if side.settled => ", 1 seed drifting".into(),
                2.. if side.settled => format!(", {} seeds drifting", side.drifting),
                _ => String::new(),
            };
            format!("{}: {bound}{:.2} s{apart}", side.label, side.after_s)
        };
        self.settling.iter().map(side).collect::<Vec<_>>().join(", ")
    }

    /// Reason for which no verdict could depend on the numbers, for readers: variants that had not
    /// settled, or whose load was late. `None` without such variants.
    pub fn unmeasured(&self) -> Option<String> {
        let unsettled: Vec<String> =
            self.settling.iter().filter(|side| !side.settled).map(|side| side.label.clone()).collect();
        let parts = [("did not settle", &unsettled), ("the load generator was late", &self.late)];
        let texts = parts.into_iter().filter(|(_, labels)| !labels.is_empty());
        let texts: Vec<String> = texts.map(|(reason, labels)| format!("{reason}: {}", labels.join(", "))).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// When the runs of a variant had settled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settling {
    /// The variant.
    pub label: String,
    /// Whether its runs had settled when their measurement began, in all seeds but at most one in
    /// five.
    pub settled: bool,
    /// Number of seeds with a run that had not settled.
    #[serde(default, skip_serializing_if = "crate::counts::is_zero")]
    pub drifting: u64,
    /// Start of the measurement of the run that took longest, s.
    pub after_s: f64,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The measurement is accepted.
    Reproduced,
    /// The measurement is not accepted.
    NotReproduced,
    /// The seeds' interval reaches across an accepted bound, or a variant had not settled.
    Undecided,
    /// This run did not measure the claim (another plant, or a point left out by `--quick`).
    NotApplicable,
}

impl Verdict {
    /// The verdict as text for readers.
    pub const fn label(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Undecided => "undecided",
            Verdict::NotApplicable => "not measured",
        }
    }
}
