//! `docs/verdicts.md`: every claim with its verdict in words, every figure with what judges it, and ours against as published. Never here:
//! how verdicts come about.

use super::figures::figures;
use leeward_outcome::results::Verdict;
use leeward_outcome::verdicts::{Gain, Judged, JudgedClaim, Tally, Verdicts};
use std::fmt::Write;

/// The page.
pub fn markdown(verdicts: &Verdicts) -> String {
    let mut text = head(verdicts);
    text += &summary(verdicts);
    text += "\n## Claims\n";
    verdicts.scenarios.iter().for_each(|scenario| text += &claims(scenario));
    text += &additions(verdicts);
    text + &all_figures(verdicts)
}

fn head(verdicts: &Verdicts) -> String {
    format!(
        "# Verdicts on the papers' claims\n\n\
         Made by `{}`: do not edit. A claim with a paper's number is judged on the algorithms as published\n\
         ([as-published.md](as-published.md)); the same with our additions stands beside it.\n\n\
         - **Verdict.** A claim is measured once per seed. The interval in brackets holds the median over the seeds with 95 % probability (percentile\n  \
         bootstrap). *Reproduced*: the interval lies within what is accepted. *Not reproduced*: it lies outside. *Undecided*: it reaches across a\n  \
         bound. Infinite ratios count.\n\
         - **Accepted.** From a paper's number follows a range by one rule: half of the distance between it and the value without effect (1 for a\n  \
         ratio, 0 for an amount, or what the scenario names), either way. A claim in words has the bound that the words say.\n\
         - **Seeds.** The baselines were tuned on other seeds than those that judge.\n",
        verdicts.command
    )
}

fn summary(verdicts: &Verdicts) -> String {
    let mut text = String::from(
        "\n## In all\n\n| claims | all | reproduced | not reproduced | undecided | not measured | reproduced of decided |\n|---|---|---|---|---|---|---|\n",
    );
    let row = |name: &str, tally: Tally| {
        let share = 100.0 * tally.reproduced as f64 / tally.decided().max(1) as f64;
        format!(
            "| {name} | {} | {} | {} | {} | {} | {share:.0} % |\n",
            tally.all(),
            tally.reproduced,
            tally.not_reproduced,
            tally.undecided,
            tally.not_measured
        )
    };
    text += &row("of the papers, as published", Tally::of(verdicts, |claim| !claim.ours));
    text += &row("our own", Tally::of(verdicts, |claim| claim.ours));
    text + &row("together", Tally::of(verdicts, |_| true))
}

fn claims(scenario: &Judged) -> String {
    let extent = if scenario.quick { ", quick" } else { "" };
    let mut text = format!(
        "\n### {}\n\n{}. {} ({} seeds{extent}).\n",
        scenario.id,
        cell(&scenario.source),
        cell(&scenario.title),
        scenario.seeds
    );
    if !scenario.machine.is_empty() {
        let _ = writeln!(
            text,
            "\nAs published: on the machine as far as the paper has measured it (`{}`). With our additions: on the scenario's own.",
            cell(&scenario.machine)
        );
    }
    if !scenario.not_run.is_empty() {
        let _ = writeln!(text, "\nNot run here: {}.", cell(&scenario.not_run));
    }
    text += "\n| claim | paper | measured as published | accepted | verdict | with our additions | reason, note |\n|---|---|---|---|---|---|---|\n";
    for claim in &scenario.claims {
        text += &row(claim);
    }
    text
}

fn row(claim: &JudgedClaim) -> String {
    let counted = claim.claim();
    let note = if counted.verdict == Verdict::Reproduced { "" } else { &counted.note };
    let beside = if claim.published == claim.extended {
        "the same".into()
    } else {
        format!("{}: {}", cell(&claim.extended.measured), claim.extended.verdict.words())
    };
    let published =
        if claim.ours && claim.published != claim.extended { "not judged" } else { &claim.published.measured };
    let paper = if claim.ours { format!("ours ({})", cell(&counted.paper)) } else { cell(&counted.paper) };
    format!(
        "| `{}` {} | {paper} | {} | {} | **{}** | {beside} | {} |\n",
        counted.id,
        cell(&counted.text),
        cell(published),
        cell(&counted.accepted),
        counted.verdict.words(),
        cell(note)
    )
}

fn additions(verdicts: &Verdicts) -> String {
    let mut text = String::from(
        "\n## Our additions against the algorithms as published\n\nAt the highest demand of each scenario, medians over the seeds. A gain above 0 % is goodput that \
         our additions bring; of the 99th\npercentile, less is better.\n\n\
         | scenario | controller | demand, k/s | goodput as published, k/s | with ours, k/s | gain | p99 as published, µs | with ours, µs |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for scenario in &verdicts.scenarios {
        for gain in &scenario.gains {
            text += &gain_row(scenario, gain);
        }
    }
    text
}

fn gain_row(scenario: &Judged, gain: &Gain) -> String {
    let change = if gain.published_rps > 0.0 {
        format!("{:+.1} %", 100.0 * (gain.extended_rps / gain.published_rps - 1.0))
    } else if gain.extended_rps > 0.0 {
        "from nothing".into()
    } else {
        "nothing either way".into()
    };
    format!(
        "| {} | {} | {:.1} | {:.1} | {:.1} | {change} | {:.0} | {:.0} |\n",
        scenario.id,
        cell(&gain.label),
        gain.demand_rps / 1e3,
        gain.published_rps / 1e3,
        gain.extended_rps / 1e3,
        gain.published_p99_us,
        gain.extended_p99_us
    )
}

fn all_figures(verdicts: &Verdicts) -> String {
    let has_run = |id: &str| verdicts.scenarios.iter().any(|scenario| scenario.id == id);
    let name = |id: &&str| if has_run(id) { format!("`{id}`") } else { format!("`{id}` (not run yet)") };
    let mut text =
        String::from("\n## The papers' figures\n\n| paper | figure | judged by, or why not |\n|---|---|---|\n");
    for figure in figures() {
        let scenarios: Vec<String> = figure.scenarios.iter().map(name).collect();
        let by = if scenarios.is_empty() { format!("out of reach: {}", figure.reason) } else { scenarios.join(", ") };
        let _ = writeln!(text, "| {} | {} | {by} |", figure.paper, figure.number);
    }
    text
}

/// Text that a cell of a table can hold.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
