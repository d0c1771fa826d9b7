//! The papers' claims over all scenarios, each judged on the algorithms as published and with our
//! additions.
//!
//! `leeward verdicts` writes them. Does not contain the judging (lab) or the drawing (report).

use crate::results::{Claim, Verdict};
use serde::{Deserialize, Serialize};

/// Verdicts on the claims of many scenarios.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Command that produced them.
    pub command: String,
    /// Scenarios, in the order of the papers' figures.
    pub scenarios: Vec<ScenarioVerdicts>,
}

/// Prefix of the ids of claims that a tuned rival is as good as the same rival untuned.
const SANITY: &str = "sanity-";

impl Verdicts {
    /// Claims by which a rival is worse with the tuned parameters than untuned, such as
    /// `bw-clients sanity-retuned-100 (0.9x)`.
    pub fn unfair(&self) -> Vec<String> {
        let mut unfair = Vec::new();
        for scenario in &self.scenarios {
            let claims = scenario.claims.iter().map(ClaimVerdicts::claim);
            let failed = claims.filter(|claim| claim.id.starts_with(SANITY) && claim.verdict == Verdict::NotReproduced);
            unfair.extend(failed.map(|claim| format!("{} {} ({})", scenario.id, claim.id, claim.measured)));
        }
        unfair
    }
}

/// Claims of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioVerdicts {
    /// Id of the scenario.
    pub id: String,
    /// Title of the scenario.
    pub title: String,
    /// Paper and figure.
    pub source: String,
    /// Seeds per point.
    pub seeds: u32,
    /// Whether the scenario's `[quick]` section applied.
    pub quick: bool,
    /// Overrides that set the paper's machine for the papers' claims; empty if the scenario has it
    /// already.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Reason for not running the scenario; empty if it was run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_run: String,
    /// How and when the verdicts were made.
    #[serde(default, skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
    /// The claims.
    pub claims: Vec<ClaimVerdicts>,
    /// Comparison of our additions with the algorithm as published, per controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<Gain>,
    /// Panels of the paper's figures for which the text gives numbers, with our curves as
    /// published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<Panel>,
}

/// How and when the verdicts of a scenario were made. It never influences them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Command that judges this scenario in the same way.
    pub command: String,
    /// Version of the program, with the commit if it was built by `make`.
    pub version: String,
    /// Date (UTC), such as `2026-11-27`.
    pub date: String,
    /// CPU time that the runs took, in seconds.
    pub cpu_s: f64,
}

impl Provenance {
    /// Whether nothing is known: the verdicts are older than this record.
    pub fn is_unknown(&self) -> bool {
        *self == Provenance::default()
    }
}

/// Panel of a paper's figure: our curves, and the numbers in the paper's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Paper and number of the figure.
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
    /// Parts of the figure that the text does not give.
    pub missing: String,
}

/// One of our curves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Label of the variant.
    pub label: String,
    /// Samples, in the order of the horizontal axis.
    pub samples: Vec<Sample>,
}

/// Point of a curve: the median over the seeds, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Number in a paper's text on a curve: a point, or a line across the panel if one coordinate is
/// open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperValue {
    /// Name of the curve or of the line.
    pub series: String,
    /// Value on the horizontal axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Value on the vertical axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
    /// Statement of the text, with its section.
    pub says: String,
}

/// Note on a paper's figure; with a reason, no curve of it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureNote {
    /// Paper and number of the figure.
    pub figure: String,
    /// Ids of scenarios that judge or draw the figure.
    pub scenarios: Vec<String>,
    /// Reason for not drawing it; empty if a curve is drawn.
    pub reason: String,
}

/// A claim, judged in both forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimVerdicts {
    /// Whether the claim is ours, not a paper's.
    pub ours: bool,
    /// The paper's number and the accepted values.
    #[serde(default, skip_serializing_if = "Bounds::is_open")]
    pub bounds: Bounds,
    /// Judged with the algorithms as published.
    pub published: Claim,
    /// Judged with our additions.
    pub extended: Claim,
    /// What turns the verdict, if that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_by: Option<TurnedBy>,
}

/// Changed assumptions under which a claim that is not reproduced is reproduced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedBy {
    /// Number of assumptions that were changed, one at a time.
    pub tried: usize,
    /// Those that turn the verdict.
    pub changes: Vec<String>,
}

impl ClaimVerdicts {
    /// The claim in the form that counts: as published for a paper's, with our additions for ours.
    pub fn claim(&self) -> &Claim {
        if self.ours { &self.extended } else { &self.published }
    }

    /// What would turn a claim that is not reproduced, for readers; empty for other claims.
    pub fn remedy(&self) -> String {
        match (&self.turned_by, self.verdict()) {
            (_, verdict) if verdict != Verdict::NotReproduced => String::new(),
            (None, _) => "not tried".into(),
            (Some(TurnedBy { tried, changes }), _) if changes.is_empty() => format!("none of {tried} changes"),
            (Some(TurnedBy { tried, changes }), _) => format!("of {tried} changes: {}", changes.join("; ")),
        }
    }

    /// Verdict in the form that counts.
    pub fn verdict(&self) -> Verdict {
        self.claim().verdict
    }
}

/// The paper's number and the accepted bounds, in the claim's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The paper's number, if stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<f64>,
    /// Minimum accepted value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Maximum accepted value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Bounds {
    /// Whether there is neither a number nor a bound.
    pub fn is_open(&self) -> bool {
        *self == Bounds::default()
    }
}

/// Gain of our additions over the algorithm as published, for a controller at its highest demand;
/// medians over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Label of the controller.
    pub label: String,
    /// Demand, requests per second.
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

/// Numbers of claims by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Claims that hold.
    pub reproduced: usize,
    /// Claims that do not hold.
    pub not_reproduced: usize,
    /// Claims that the seeds leave undecided.
    pub undecided: usize,
    /// Claims that were not measured.
    pub not_measured: usize,
}

impl VerdictCounts {
    /// Counts the claims that `wanted` selects.
    pub fn count(verdicts: &Verdicts, is_selected: impl Fn(&ClaimVerdicts) -> bool) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        let claims = verdicts.scenarios.iter().flat_map(|scenario| &scenario.claims);
        for claim in claims.filter(|claim| is_selected(claim)) {
            let count = match claim.verdict() {
                Verdict::Reproduced => &mut counts.reproduced,
                Verdict::NotReproduced => &mut counts.not_reproduced,
                Verdict::Undecided => &mut counts.undecided,
                Verdict::NotApplicable => &mut counts.not_measured,
            };
            *count += 1;
        }
        counts
    }

    /// Number of claims with a verdict for or against.
    pub fn decided(&self) -> usize {
        self.reproduced + self.not_reproduced
    }

    /// Number of all claims.
    pub fn total(&self) -> usize {
        self.decided() + self.undecided + self.not_measured
    }
}
