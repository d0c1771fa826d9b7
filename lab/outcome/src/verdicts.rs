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
    pub scenarios: Vec<ScenarioVerdicts>,
}

/// Claims of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioVerdicts {
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
    pub claims: Vec<ClaimVerdicts>,
    /// Points at which the additions of ours were compared with the algorithm as published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<Gain>,
    /// Panels of the paper's figures of which its text gives numbers, with our curves as published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<Panel>,
}

/// Panel of a paper's figure: our curves, and what its text says of the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The paper and the figure's number.
    pub figure: String,
    /// Title of the panel.
    pub title: String,
    /// Field of the horizontal axis.
    pub x: String,
    /// Field of the vertical axis.
    pub y: String,
    /// Whether the vertical axis is logarithmic.
    pub log_y: bool,
    /// Our curves.
    pub curves: Vec<Curve>,
    /// The paper's numbers.
    pub stated: Vec<PaperValue>,
    /// Parts of the figure that can't be read from the text.
    pub missing: String,
}

/// Curve of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The variant's label.
    pub label: String,
    /// Its points, in the order of the horizontal axis.
    pub samples: Vec<Sample>,
}

/// Point of a curve: the median over the seeds, and the interval that holds it with 95 % probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// On the horizontal axis.
    pub x: f64,
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Number that a paper's text gives of a curve: a point, or a line across the panel where one coordinate is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperValue {
    /// The curve that it is of, or the name of the line.
    pub series: String,
    /// On the horizontal axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// On the vertical axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
    /// The text's sense, and its section.
    pub says: String,
}

/// Note on a paper's figure: nothing of it is drawn where a reason is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureNote {
    /// The paper and the figure's number.
    pub figure: String,
    /// Ids of scenarios that judge it, or draw it.
    pub scenarios: Vec<String>,
    /// Reason why no curve of it is drawn; empty if one is.
    pub reason: String,
}

/// A claim in both forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimVerdicts {
    /// Whether no paper makes this claim.
    pub ours: bool,
    /// The paper's number, and what is accepted.
    #[serde(default, skip_serializing_if = "Bounds::is_open")]
    pub bounds: Bounds,
    /// With the algorithms as published.
    pub published: Claim,
    /// With our additions.
    pub extended: Claim,
}

impl ClaimVerdicts {
    /// The claim in the form that counts: a paper's as published, ours with our additions.
    pub fn claim(&self) -> &Claim {
        if self.ours { &self.extended } else { &self.published }
    }

    /// Its verdict.
    pub fn verdict(&self) -> Verdict {
        self.claim().verdict
    }
}

/// The paper's number and what is accepted, in the claim's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The paper's number, where it states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<f64>,
    /// Smallest accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Bounds {
    /// Whether nothing is known.
    pub fn is_open(&self) -> bool {
        *self == Bounds::default()
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
pub struct VerdictCounts {
    /// Claims that hold.
    pub reproduced: usize,
    /// Claims that do not hold.
    pub not_reproduced: usize,
    /// Claims on which the seeds do not agree enough.
    pub undecided: usize,
    /// Claims that were not measured.
    pub not_measured: usize,
}

impl VerdictCounts {
    /// Counts the claims that `wanted` picks.
    pub fn count(verdicts: &Verdicts, wanted: impl Fn(&ClaimVerdicts) -> bool) -> VerdictCounts {
        let mut tally = VerdictCounts::default();
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
    pub fn total(&self) -> usize {
        self.decided() + self.undecided + self.not_measured
    }
}
