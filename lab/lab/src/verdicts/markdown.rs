//! `docs/verdicts.md`: every claim with its verdict, every figure with its scenarios, and our
//! additions compared with the published algorithms.
//!
//! Does not contain the judging.

use super::figures::figures;
use super::run::scenarios;
use leeward_outcome::results::Verdict;
use leeward_outcome::verdicts::{ClaimVerdicts, Gain, Provenance, ScenarioVerdicts, VerdictCounts, Verdicts};
use std::fmt::Write;

/// Returns the page.
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
         bound, or a side had not settled. Infinite ratios count.\n\
         - **Settled after.** A run is measured when goodput, the credit pool and the requests held back at clients are stationary\n  \
         ([scenarios.md](scenarios.md#when-a-run-is-measured)). The column has the latest start of a measurement of each side. Of five seeds, one\n  \
         may seem to drift: the test takes some stationary runs for drifting ones. Its values count.\n\
         - **What would turn it.** The changes of a single assumption under which a claim that is not reproduced is reproduced, of those in\n  \
         [sensitivity.md](sensitivity.md). *Not tried*: nobody has run `--sensitivity --missed` for its scenario.\n\
         - **Accepted.** From a paper's number follows a range by one rule: half of the distance between it and the value without effect (1 for a\n  \
         ratio, 0 for an amount, or what the scenario names), either way. A claim in words has the bound that the words say.\n\
         - **Seeds.** The baselines were tuned on other seeds than those that judge.\n\n\
         **Check one.** Run the command above its table with `--out DIR`, which leaves this file alone, and compare the rows: in the simulator\n\
         they are equal on every machine. To try what would turn a claim, add an assumption: `--set network.jitter=20us` or another\n\
         [key](scenarios.md#reference). `--sensitivity` tries those of [sensitivity.md](sensitivity.md), in some twenty times the CPU time.\n",
        verdicts.command
    )
}

fn summary(verdicts: &Verdicts) -> String {
    let mut text = String::from(
        "\n## In all\n\n| claims | all | reproduced | not reproduced | undecided | not measured | reproduced of decided |\n|---|---|---|---|---|---|---|\n",
    );
    let row = |name: &str, tally: VerdictCounts| {
        let share = 100.0 * tally.reproduced as f64 / tally.decided().max(1) as f64;
        format!(
            "| {name} | {} | {} | {} | {} | {} | {share:.0} % |\n",
            tally.total(),
            tally.reproduced,
            tally.not_reproduced,
            tally.undecided,
            tally.not_measured
        )
    };
    text += &row("of the papers, as published", VerdictCounts::count(verdicts, |claim| !claim.ours));
    text += &row("our own", VerdictCounts::count(verdicts, |claim| claim.ours));
    text + &row("together", VerdictCounts::count(verdicts, |_| true)) + &cost(verdicts) + &unfair(verdicts)
}

fn unfair(verdicts: &Verdicts) -> String {
    let unfair = verdicts.unfair();
    if unfair.is_empty() {
        return String::new();
    }
    format!("\n**A rival is worse as tuned than untuned: {}.** Comparisons with it are unfair.\n", unfair.join(", "))
}

/// CPU time of all scenarios, and the longest ones.
fn cost(verdicts: &Verdicts) -> String {
    let mut times: Vec<(f64, &str)> =
        verdicts.scenarios.iter().map(|scenario| (scenario.provenance.cpu_s, scenario.id.as_str())).collect();
    let total: f64 = times.iter().map(|(cpu, _)| cpu).sum();
    if total == 0.0 {
        return String::new();
    }
    times.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let longest: Vec<String> =
        times.iter().take(3).map(|(cpu, id)| format!("`{id}` {:.0} %", 100.0 * cpu / total)).collect();
    format!("\nThe runs took {:.1} hours of one CPU; most of it: {}.\n", total / 3600.0, longest.join(", "))
}

fn claims(scenario: &ScenarioVerdicts) -> String {
    let extent = if scenario.quick { ", quick" } else { "" };
    let mut text = format!(
        "\n### {}\n\n{}. {} ({} seeds{extent}).\n",
        scenario.id,
        cell(&scenario.source),
        cell(&scenario.title),
        scenario.seeds
    );
    let Provenance { command, version, date, cpu_s } = &scenario.provenance;
    if !scenario.provenance.is_unknown() {
        let _ = writeln!(text, "\n`{command}` by {version} on {date}, {cpu_s:.0} s of CPU.");
    } else if scenario.not_run.is_empty() {
        text += "\nJudged by an older version, whose runs had fixed times.\n";
    }
    if !scenario.machine.is_empty() {
        let _ = writeln!(
            text,
            "\nAs published: on a machine with the values that the paper reports (`{}`). The other column: on the scenario's own machine. Verdicts that depend on the machine: {}.",
            cell(&scenario.machine),
            machine_dependent(scenario)
        );
    }
    if !scenario.not_run.is_empty() {
        let _ = writeln!(text, "\nNot run here: {}.", cell(&scenario.not_run));
    }
    let beside = if scenario.machine.is_empty() { "with our additions" } else { "on the scenario's own machine" };
    let _ = writeln!(
        text,
        "\n| claim | paper | measured as published | accepted | verdict | settled after | {beside} | what would turn it | reason, note |\n|---|---|---|---|---|---|---|---|---|"
    );
    for claim in &scenario.claims {
        text += &row(claim);
    }
    text
}

/// The papers' claims whose verdicts differ between the paper's machine and the scenario's own.
fn machine_dependent(scenario: &ScenarioVerdicts) -> String {
    let papers = scenario.claims.iter().filter(|claim| !claim.ours);
    let differ = papers.filter(|claim| claim.published.verdict != claim.extended.verdict);
    let ids: Vec<String> = differ.map(|claim| format!("`{}`", claim.published.id)).collect();
    if ids.is_empty() { "none".into() } else { ids.join(", ") }
}

fn row(claim: &ClaimVerdicts) -> String {
    let counted = claim.claim();
    let note = if counted.verdict == Verdict::Reproduced { "" } else { &counted.note };
    let beside = if claim.published == claim.extended {
        "the same".into()
    } else {
        format!("{}: {}", cell(&claim.extended.measured), claim.extended.verdict.label())
    };
    let published =
        if claim.ours && claim.published != claim.extended { "not judged" } else { &claim.published.measured };
    let paper = if claim.ours { format!("ours ({})", cell(&counted.paper)) } else { cell(&counted.paper) };
    format!(
        "| `{}` {} | {paper} | {} | {} | **{}** | {} | {beside} | {} | {} |\n",
        counted.id,
        cell(&counted.text),
        cell(published),
        cell(&counted.accepted),
        counted.verdict.label(),
        cell(&counted.settled_after()),
        cell(&claim.remedy()),
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
    text + &gains_summary(verdicts) + &unlisted_scenarios(verdicts)
}

/// Minimum relative gain or loss that is mentioned: the spread of the seeds is some tenths of a
/// percent.
const MIN_GAIN: f64 = 0.01;

/// Summary of the table in three sentences: gains, losses, and no change.
fn gains_summary(verdicts: &Verdicts) -> String {
    let all = || verdicts.scenarios.iter().flat_map(|scenario| scenario.gains.iter().map(move |gain| (scenario, gain)));
    // A gain from zero has no ratio: it counts as the largest.
    let change = |gain: &Gain| match (gain.published_rps, gain.extended_rps) {
        (published, extended) if published > 0.0 => extended / published - 1.0,
        (_, extended) if extended > 0.0 => f64::INFINITY,
        _ => 0.0,
    };
    let named = |wanted: &dyn Fn(f64) -> bool| {
        let mut found: Vec<(f64, String)> = all()
            .map(|(scenario, gain)| (change(gain), format!("`{}` {}", scenario.id, cell(&gain.label))))
            .filter(|(change, _)| wanted(*change))
            .collect();
        found.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        let told = |(change, name): (f64, String)| match change.is_finite() {
            true => format!("{name} ({:+.1} %)", 100.0 * change),
            false => format!("{name} (from nothing)"),
        };
        found.into_iter().map(told).collect::<Vec<_>>()
    };
    let (help, cost) = (named(&|change| change >= MIN_GAIN), named(&|change| change <= -MIN_GAIN));
    let elsewhere = all().count() - help.len() - cost.len();
    let list = |names: &[String]| if names.is_empty() { "nowhere".into() } else { names.join(", ") };
    format!(
        "\n- **They help** by 1 % of goodput or more in {} of {} rows: {}.\n- **They cost** as much in {}: {}.\n- In {elsewhere} they do neither.\n",
        help.len(),
        all().count(),
        list(&help),
        cost.len(),
        list(&cost)
    )
}

/// The papers' scenarios that are not in the table, with the reasons.
fn unlisted_scenarios(verdicts: &Verdicts) -> String {
    let (mut not_run, mut nothing) = (Vec::new(), Vec::new());
    for known in scenarios(&[]) {
        match verdicts.scenarios.iter().find(|scenario| scenario.id == known.id) {
            Some(scenario) if scenario.gains.is_empty() => nothing.push(format!("`{}`", known.id)),
            Some(_) => {}
            None => not_run.push(format!("`{}`", known.id)),
        }
    }
    let list = |names: Vec<String>| if names.is_empty() { "none".into() } else { names.join(", ") };
    format!(
        "- No row: not run yet {}; no controller with additions of ours, or none that is simulated, {}.\n",
        list(not_run),
        list(nothing)
    )
}

fn gain_row(scenario: &ScenarioVerdicts, gain: &Gain) -> String {
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

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
