//! The papers' claims over all scenarios, each judged on the algorithms as published and with our additions: what `leeward verdicts` writes.
//! Judging is the lab's, drawing the report's.

use crate::results::{Claim, Verdict};
use serde::{Deserialize, Serialize};

/// Verdicts on the claims of many scenarios.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Command that made them.
    pub command: String,
    /// Scenarios, in the order of the papers' figures.
    pub scenarios: Vec<Judged>,
}

/// Claims of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The scenario's id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The paper and figure.
    pub source: String,
    /// Seeds per point.
    pub seeds: u32,
    /// Whether its `[quick]` section applied.
    pub quick: bool,
    /// Overrides that put the papers' claims on the paper's machine; empty if that is the scenario's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Reason why nothing was run; empty if it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_run: String,
    /// The claims.
    pub claims: Vec<JudgedClaim>,
    /// Points at which the additions of ours were compared with the algorithm as published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<Gain>,
}

/// A claim in both forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedClaim {
    /// Whether no paper makes this claim.
    pub ours: bool,
    /// With the algorithms as published.
    pub published: Claim,
    /// With our additions.
    pub extended: Claim,
}

impl JudgedClaim {
    /// The claim in the form that counts: a paper's as published, ours with our additions.
    pub fn claim(&self) -> &Claim {
        if self.ours { &self.extended } else { &self.published }
    }

    /// Its verdict.
    pub fn verdict(&self) -> Verdict {
        self.claim().verdict
    }
}

/// Our additions against the algorithm as published, for a controller at its highest demand; medians over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The controller's label.
    pub label: String,
    /// Requests per second.
    pub demand_rps: f64,
    /// Goodput as published, per second.
    pub published_rps: f64,
    /// Goodput with our additions, per second.
    pub extended_rps: f64,
    /// 99th percentile as published, in µs.
    pub published_p99_us: f64,
    /// 99th percentile with our additions, in µs.
    pub extended_p99_us: f64,
}

/// Numbers of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims that hold.
    pub reproduced: usize,
    /// Claims that do not hold.
    pub not_reproduced: usize,
    /// Claims on which the seeds do not agree enough.
    pub undecided: usize,
    /// Claims that were not measured.
    pub not_measured: usize,
}

impl Tally {
    /// Counts the claims that `wanted` picks.
    pub fn of(verdicts: &Verdicts, wanted: impl Fn(&JudgedClaim) -> bool) -> Tally {
        let mut tally = Tally::default();
        let claims = verdicts.scenarios.iter().flat_map(|scenario| &scenario.claims);
        for claim in claims.filter(|claim| wanted(claim)) {
            let count = match claim.verdict() {
                Verdict::Reproduced => &mut tally.reproduced,
                Verdict::NotReproduced => &mut tally.not_reproduced,
                Verdict::Undecided => &mut tally.undecided,
                Verdict::NotApplicable => &mut tally.not_measured,
            };
            *count += 1;
        }
        tally
    }

    /// Claims with a verdict for or against.
    pub fn decided(&self) -> usize {
        self.reproduced + self.not_reproduced
    }

    /// All claims.
    pub fn all(&self) -> usize {
        self.decided() + self.undecided + self.not_measured
    }
}
