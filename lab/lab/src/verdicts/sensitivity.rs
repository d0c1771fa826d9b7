//! Sensitivity of verdicts to invented parameters: a scenario's claims judged in its own world and
//! in others, and the page with the flips.

use super::forms::Forms;
use super::perturbations::{PERTURBATIONS, Perturbation};
use super::run::{Extent, VerdictsError, judge_counted};
use crate::BuiltinScenario;
use crate::options::Progress;
use crate::scenario::Scenario;
use leeward_core::registry::Registry;
use leeward_outcome::results::Verdict;
use leeward_outcome::sensitivity::{ClaimSensitivity, MeasuredVerdict, ScenarioSensitivity, Sensitivity};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Judges one scenario's claims in its own world and in all others, each claim in the form that
/// counts. `is_wanted` picks claims by their ids; runs that only others need are left out.
///
/// # Errors
/// A rejected override, or a failed run.
pub fn probe(
    builtin: &BuiltinScenario,
    is_wanted: &dyn Fn(&str) -> bool,
    extent: &Extent,
    registry: &Registry,
    progress: &(dyn Fn(&str, Progress) + Sync),
    cancel: &AtomicBool,
) -> Result<ScenarioSensitivity, VerdictsError> {
    let name = format!("{}.toml", builtin.id);
    let own = Scenario::parse(&name, builtin.text, Path::new(""), &extent.overrides, extent.quick, registry)?;
    let judge = |name: &str, sections: &str, overrides: &[String]| {
        let text = format!("{}{sections}", builtin.text);
        let mut all = extent.all_overrides();
        all.extend_from_slice(overrides);
        let forms = Forms::read((builtin.id, &text), &all, extent.quick, registry)?;
        judge_counted(&forms, &|claim| is_wanted(&claim.id), extent, registry, &|done| progress(name, done), cancel)
    };
    let before = judge("its own world", "", &[])?;
    let measured = |claim: &leeward_outcome::results::Claim| MeasuredVerdict {
        verdict: claim.verdict,
        measured: claim.measured.clone(),
    };
    let mut claims: Vec<ClaimSensitivity> = before
        .iter()
        .map(|(ours, claim)| ClaimSensitivity {
            id: claim.id.clone(),
            text: claim.text.clone(),
            ours: *ours,
            own: measured(claim),
            others: Vec::new(),
        })
        .collect();
    for world in PERTURBATIONS {
        let changed = world.change(&own);
        let now = changed.map(|changed| judge(world.name, &changed.sections, &changed.overrides)).transpose()?;
        for (index, claim) in claims.iter_mut().enumerate() {
            claim.others.push(now.as_ref().and_then(|now| now.get(index)).map(|(_, claim)| measured(claim)));
        }
    }
    Ok(ScenarioSensitivity {
        id: builtin.id.into(),
        seeds: extent.seeds,
        quick: extent.quick,
        worlds: PERTURBATIONS.iter().map(|world| world.name.to_string()).collect(),
        claims,
    })
}

/// Returns `docs/sensitivity.md`: a row per claim, a column per world, flips marked.
pub fn sensitivity(all: &Sensitivity) -> String {
    let claims: usize = all.scenarios.iter().map(|scenario| scenario.claims.len()).sum();
    let mut text = format!(
        "# How verdicts depend on the simulator's assumptions\n\nMade by `{}`: do not edit.\n\nThe division of a request's CPU time among receiving, creating a task and \
         sending, and the costs of a rejection and of stealing, are our\nassumptions (`lab/sim/src/config.rs`), and so are a network without jitter, a control \
         loop that is never late, and open-loop Poisson\narrivals. Here {claims} claims of {} scenarios are judged again, each in worlds that differ in one of these. \
         A paper's claim is judged as\npublished, ours with our additions. The scenario `mt-sensitivity` varies more costs of threads.\n",
        all.command,
        all.scenarios.len()
    );
    text += &worlds(all);
    text += &flips(all);
    all.scenarios.iter().for_each(|scenario| text += &table(scenario));
    text
}

/// Verdict on a claim in a world. Rows of earlier files may have other worlds, or another order.
fn measured_verdict<'a>(
    scenario: &ScenarioSensitivity,
    claim: &'a ClaimSensitivity,
    world: &Perturbation,
) -> Option<&'a MeasuredVerdict> {
    let at = scenario.worlds.iter().position(|name| name == world.name)?;
    claim.others.get(at)?.as_ref()
}

/// Name of a world in the tables' headings.
fn column_name(index: usize) -> String {
    format!("w{}", index + 1)
}

/// Table of all worlds with their numbers of flipped verdicts.
fn worlds(all: &Sensitivity) -> String {
    let mut text = String::from(
        "\n## The worlds\n\n| | world | claims judged | verdicts that flip | of these, become or cease to be undecided |\n|---|---|---|---|---|\n",
    );
    for (index, world) in PERTURBATIONS.iter().enumerate() {
        let verdicts = || {
            let claims =
                all.scenarios.iter().flat_map(|scenario| scenario.claims.iter().map(move |claim| (scenario, claim)));
            claims.filter_map(move |(scenario, claim)| {
                Some((claim.own.verdict, measured_verdict(scenario, claim, world)?.verdict))
            })
        };
        let flipped = || verdicts().filter(|(then, now)| then != now);
        let soft = flipped().filter(|(then, now)| [then, now].contains(&&Verdict::Undecided)).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {soft} |",
            column_name(index),
            world.name,
            verdicts().count(),
            flipped().count()
        );
    }
    text
}

/// Table of claims that hold in some worlds and fail in others, with the measurements.
fn flips(all: &Sensitivity) -> String {
    let mut text = String::from(
        "\n## Claims that flip between reproduced and not reproduced\n\n| claim | in its own world | where it flips |\n|---|---|---|\n",
    );
    let head = text.len();
    for scenario in &all.scenarios {
        for claim in &scenario.claims {
            let hard = |other: &MeasuredVerdict| {
                ![claim.own.verdict, other.verdict].contains(&Verdict::Undecided) && other.verdict != claim.own.verdict
            };
            let there =
                |(index, world)| Some((index, measured_verdict(scenario, claim, world).filter(|other| hard(other))?));
            let flipped = PERTURBATIONS.iter().enumerate().filter_map(there);
            let flips: Vec<String> =
                flipped.map(|(index, other)| format!("{}: {}", column_name(index), other.measured)).collect();
            if !flips.is_empty() {
                let own = format!("{}: {}", claim.own.measured, claim.own.verdict.label());
                let _ = writeln!(text, "| `{} {}` | {own} | {} |", scenario.id, claim.id, flips.join("; "));
            }
        }
    }
    if text.len() == head {
        text += "| none | | |\n";
    }
    text
}

fn table(scenario: &ScenarioSensitivity) -> String {
    let extent = if scenario.quick { ", quick" } else { "" };
    let columns: String = (0..PERTURBATIONS.len()).map(|index| format!(" {} |", column_name(index))).collect();
    let mut text = format!(
        "\n## {}\n\n{} seeds{extent}. `=` as in its own world, **yes** reproduced, **no** not reproduced, `?` undecided, `–` nothing to change or to judge.\n\n\
         | claim | own |{columns}\n|---|---|{}\n",
        scenario.id,
        scenario.seeds,
        "---|".repeat(PERTURBATIONS.len())
    );
    for claim in &scenario.claims {
        let cell = |world| match measured_verdict(scenario, claim, world).map(|other| other.verdict) {
            Some(Verdict::NotApplicable) | None => " – |".into(),
            Some(verdict) if verdict == claim.own.verdict => " = |".into(),
            Some(verdict) => format!(" {} |", short(verdict)),
        };
        let cells: String = PERTURBATIONS.iter().map(cell).collect();
        let _ = writeln!(text, "| `{}` | {} |{cells}", claim.id, claim.own.verdict.label());
    }
    text
}

fn short(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "**yes**",
        Verdict::NotReproduced => "**no**",
        Verdict::Undecided => "?",
        Verdict::NotApplicable => "–",
    }
}
