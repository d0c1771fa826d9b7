//! The runs of a scenario in both forms, and the verdicts on its claims. Does not contain the rules
//! of the verdicts (`claims`).

use super::forms::Forms;
use super::panels::{is_drawn, panels};
use crate::claims::judge;
use crate::error::RunError;
use crate::numbers::{median, round};
use crate::options::{Options, Progress};
use crate::run::run_selected;
use crate::scenario::{ClaimSpec, Scenario, ScenarioError};
use crate::{BuiltinScenario, builtin_scenarios};
use leeward_core::registry::Registry;
use leeward_outcome::results::{Claim, PointRow, Results, RunKey, Verdict};
use leeward_outcome::sensitivity::{MeasuredVerdict, Sensitivity};
use leeward_outcome::verdicts::{Bounds, ClaimVerdicts, Gain, ScenarioVerdicts, TurnedBy, Verdicts};
use std::sync::atomic::AtomicBool;

/// Prefixes of the ids of the papers' scenarios.
const PAPERS: [&str; 4] = ["bw-", "lk-", "ca-", "mt-"];

/// Extent of the runs of each scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Seeds per point.
    pub seeds: u32,
    /// First seed. Baselines were tuned on seeds from 1; a later first seed judges them on other
    /// seeds.
    pub seed: u64,
    /// Whether the `[quick]` sections apply.
    pub quick: bool,
    /// Overrides of every scenario.
    pub overrides: Vec<String>,
    /// Number of threads; `None` for one per CPU.
    pub threads: Option<usize>,
}

impl Extent {
    /// The override of the seeds, and all others.
    pub(super) fn all_overrides(&self) -> Vec<String> {
        let seeds = format!("run.seeds={}", self.seeds);
        [seeds].into_iter().chain(self.overrides.iter().cloned()).collect()
    }
}

/// An error of judging a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerdictsError {
    /// The scenario was rejected.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Built-in scenarios whose id contains one of the `filters`; without filters, all of the papers'
/// scenarios.
pub fn scenarios(filters: &[String]) -> Vec<&'static BuiltinScenario> {
    let of_paper = |id: &str| PAPERS.iter().any(|paper| id.starts_with(paper));
    let picked = |id: &str| match filters {
        [] => of_paper(id),
        filters => filters.iter().any(|filter| id.contains(filter.as_str())),
    };
    builtin_scenarios().iter().filter(|builtin| picked(builtin.id)).collect()
}

/// Judges the claims of one built-in scenario. Only runs that a claim or a figure of a paper needs
/// are simulated.
///
/// # Errors
/// A rejected override, or a failed run.
pub fn judge_scenario(
    builtin: &BuiltinScenario,
    extent: &Extent,
    registry: &Registry,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<ScenarioVerdicts, VerdictsError> {
    let forms = Forms::read((builtin.id, builtin.text), &extent.all_overrides(), extent.quick, registry)?;
    let scenario = &forms.extended;
    let blank = ScenarioVerdicts {
        id: scenario.id.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        seeds: extent.seeds,
        quick: extent.quick,
        machine: scenario.published.join(", "),
        ..ScenarioVerdicts::default()
    };
    let options = Options { seed: extent.seed, threads: extent.threads, quick: extent.quick, ..Options::default() };
    if let Some(reason) = skip_reason(scenario) {
        let nothing = Results::default();
        let claims = claims(scenario, &nothing, &nothing);
        return Ok(ScenarioVerdicts { not_run: reason, claims, ..blank });
    }
    let is_needed = |setup: &PointRow| is_judged(scenario, setup) || is_drawn(&scenario.id, setup);
    let extended = run_selected(scenario, registry, &options, &is_needed, progress, cancel)?;
    let Some(form) = forms.differing_scenario() else {
        let panels = panels(&scenario.id, &extended);
        return Ok(ScenarioVerdicts { claims: claims(scenario, &extended, &extended), panels, ..blank });
    };
    let differing = run_selected(&form, registry, &options, &is_needed, progress, cancel)?;
    // On different machines, our additions can't be compared.
    let gains = if scenario.published.is_empty() { gains(&extended, &differing) } else { Vec::new() };
    let published = replace_variants(&extended, differing);
    let panels = panels(&scenario.id, &published);
    Ok(ScenarioVerdicts { claims: claims(scenario, &published, &extended), gains, panels, ..blank })
}

/// Judges the claims of one scenario that `is_wanted`, in the form that counts, each with whether
/// it is ours. A scenario with only papers' claims runs only as published.
///
/// # Errors
/// A failed run.
pub(super) fn judge_counted(
    forms: &Forms,
    is_wanted: &dyn Fn(&ClaimSpec) -> bool,
    extent: &Extent,
    registry: &Registry,
    progress: &(dyn Fn(Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<Vec<(bool, Claim)>, VerdictsError> {
    let own = &forms.extended;
    let form = forms.published.as_ref().unwrap_or(own);
    let wanted: Vec<&ClaimSpec> = own.claims.iter().filter(|claim| is_wanted(claim)).collect();
    let options = Options { seed: extent.seed, threads: extent.threads, quick: extent.quick, ..Options::default() };
    let results = |form: &Scenario, ours: bool| {
        let judged = || wanted.iter().filter(|claim| is_own_claim(own, claim) == ours);
        let is_run = skip_reason(form).is_none() && judged().next().is_some();
        let is_needed = |setup: &PointRow| judged().any(|claim| claim.measure.may_use(setup));
        let run = || run_selected(form, registry, &options, &is_needed, progress, cancel);
        if is_run { run() } else { Ok(Results::default()) }
    };
    let (published, extended) = (results(form, false)?, results(own, true)?);
    let judged = |claim: &&ClaimSpec| {
        let ours = is_own_claim(own, claim);
        (ours, judge(claim, if ours { &extended } else { &published }))
    };
    Ok(wanted.iter().map(judged).collect())
}

/// Whether a claim may need the run.
fn is_judged(scenario: &Scenario, setup: &PointRow) -> bool {
    scenario.claims.iter().any(|claim| claim.measure.may_use(setup))
}

fn skip_reason(scenario: &Scenario) -> Option<String> {
    let measured = scenario.workload.services.iter().find(|service| !service.is_simulated());
    measured.map(|service| {
        format!("`{}` is a service of the real plant: `leeward run {} --plant real`", service.text, scenario.id)
    })
}

fn claims(scenario: &Scenario, published: &Results, extended: &Results) -> Vec<ClaimVerdicts> {
    let both = |claim| ClaimVerdicts {
        ours: is_own_claim(scenario, claim),
        bounds: bounds(claim),
        published: judge(claim, published),
        extended: judge(claim, extended),
        turned_by: None,
    };
    scenario.claims.iter().map(both).collect()
}

fn bounds(claim: &ClaimSpec) -> Bounds {
    let rounded = |bound: Option<f64>| bound.map(|bound| round(bound, 6));
    Bounds { number: rounded(claim.number), min: rounded(claim.min), max: rounded(claim.max) }
}

/// Updates the paper's numbers and accepted bounds of claims that were judged before, from today's
/// scenarios.
pub fn fill_bounds(verdicts: &mut Verdicts) {
    for judged in &mut verdicts.scenarios {
        let Ok(scenario) = Scenario::builtin(&judged.id, &[], judged.quick) else { continue };
        for claim in &mut judged.claims {
            let known = scenario.claims.iter().find(|known| known.id == claim.published.id);
            claim.bounds = known.map(bounds).unwrap_or_default();
        }
    }
}

/// Updates what turns each claim from its verdicts under changed assumptions.
pub fn fill_remedies(verdicts: &mut Verdicts, sensitivity: &Sensitivity) {
    for judged in &mut verdicts.scenarios {
        let probed = sensitivity.scenarios.iter().find(|probed| probed.id == judged.id);
        for claim in &mut judged.claims {
            let known = probed.and_then(|probed| probed.claims.iter().find(|known| known.id == claim.published.id));
            claim.turned_by = known.zip(probed).map(|(known, probed)| {
                let worlds = || probed.worlds.iter().zip(&known.others);
                let verdict = |other: &Option<MeasuredVerdict>| other.as_ref().map(|other| other.verdict);
                let turns = worlds().filter(|(_, other)| verdict(other) == Some(Verdict::Reproduced));
                TurnedBy {
                    tried: worlds().filter(|(_, other)| other.is_some()).count(),
                    changes: turns.map(|(world, _)| world.clone()).collect(),
                }
            });
        }
    }
}

fn is_own_claim(scenario: &Scenario, claim: &ClaimSpec) -> bool {
    claim.ours || scenario.source.starts_with("ours") || scenario.source.starts_with("an addition")
}

/// Replaces rows of `extended` by those of `published` for the variants of `published`.
fn replace_variants(extended: &Results, published: Results) -> Results {
    let labels: Vec<String> = published.points.iter().map(|point| point.run.label.clone()).collect();
    let kept = |run: &RunKey| !labels.contains(&run.label);
    let mut all = extended.clone();
    macro_rules! replace {
        ($($table:ident),*) => {$(
            all.$table.retain(|row| kept(&row.run));
            all.$table.extend(published.$table);
        )*};
    }
    replace!(points, windows, shifts, locks, replicas, services, kinds);
    all
}

/// Gains of every variant that differs, at its highest demand.
fn gains(extended: &Results, published: &Results) -> Vec<Gain> {
    let mut labels: Vec<&str> = published.points.iter().map(|point| point.run.label.as_str()).collect();
    labels.dedup();
    let most = |results: &Results, label: &str| {
        let of_label = |point: &&PointRow| point.run.label == label;
        results.points.iter().filter(of_label).map(|point| point.workload.demand_rps).fold(0.0, f64::max)
    };
    let at_most = |results: &Results, label: &str, field: fn(&PointRow) -> f64| {
        let demand = most(results, label);
        let here = |point: &&PointRow| point.run.label == label && point.workload.demand_rps == demand;
        median(&mut results.points.iter().filter(here).map(field).collect::<Vec<_>>())
    };
    let gain = |label: &str| Gain {
        label: label.into(),
        demand_rps: most(published, label),
        published_rps: at_most(published, label, |point| point.goodput_rps),
        extended_rps: at_most(extended, label, |point| point.goodput_rps),
        published_p99_us: at_most(published, label, |point| point.p99_us),
        extended_p99_us: at_most(extended, label, |point| point.p99_us),
    };
    labels.into_iter().map(gain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::rows::setup;

    /// Rows of all runs, with numbers of their own in place of measured ones.
    fn numbered_rows(scenario: &Scenario) -> Vec<PointRow> {
        let registry = crate::registry();
        let planned = plan(scenario, &registry, 101).unwrap();
        let row = |(index, run)| {
            let number = 1.0 + index as f64;
            PointRow { goodput_rps: number, throughput_rps: number, p99_us: number, drop_rate: number, ..setup(run) }
        };
        planned.iter().enumerate().map(row).collect()
    }

    #[test]
    fn runs_that_no_claim_needs_do_not_change_a_claim() {
        let (mut all, mut needed) = (0, 0);
        for builtin in scenarios(&[]) {
            let scenario = Scenario::builtin(builtin.id, &["run.seeds=1".into()], false).unwrap();
            let every = Results { points: numbered_rows(&scenario), ..Results::default() };
            let mut some = every.clone();
            some.points.retain(|point| is_judged(&scenario, point));
            for claim in &scenario.claims {
                let values = [&every, &some].map(|results| claim.measure.evaluate(results, 101).map(f64::to_bits));
                assert_eq!(values[0], values[1], "{}: {}", scenario.id, claim.id);
            }
            (all, needed) = (all + every.points.len(), needed + some.points.len());
        }
        assert!(needed * 4 < all * 3, "{needed} of {all} runs are needed");
    }
}
