//! `leeward tune`: searches the parameters under which a controller serves a scenario best.

use leeward_core::params::RawParam;
use leeward_lab::tune::{self, Candidate, OWN, RETEST_SEEDS, Retest, TunedWorkload, Tuning};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::scenario::ScenarioArgs;
use crate::table::{Align, Table, WIDTH, wrap};
use crate::{scenario, stdout};

/// Maximum of candidates that are shown per workload; the scenario's own is shown in any case.
const CANDIDATES_SHOWN: usize = 10;

/// Search for the best parameters of a controller in a scenario
///
/// Tries sets of parameters, drawn over all of the controller's durations and numbers and then
/// around the best set. Every controller gets the same number of sets. The best parameters have the
/// highest goodput over the scenario's demands at and above capacity, or over all if there are
/// none; within 0.2 % of it, the lowest p99 decides. They and the scenario's own are then run again
/// on five other seeds. If they are better at each of these, they are recommended, and printed as
/// TOML for the scenario; if not, the scenario's own are as good.
#[derive(Debug, clap::Args)]
#[command(after_help = TUNE)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) what: ScenarioArgs,
    /// Label of the controller in the scenario
    #[arg(long, value_name = "LABEL")]
    pub(crate) controller: String,
    /// Number of sets to try for each service and number of clients, the scenario's own included
    #[arg(long, value_name = "N", default_value_t = tune::DRAWS, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) draws: u32,
    /// Print all tried sets as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const TUNE: &str = "\
Examples:
  leeward tune bw-overall --controller seda --quick
  leeward tune bw-overall --controller breakwater --quick --draws 200
                                                       a longer search
  leeward tune bw-overall --controller seda --set workload.clients=10000 >> tuned.toml";

/// Runs the command.
pub(crate) fn tune(args: &TuneArgs) -> Result<(), Failure> {
    let scenario = scenario::load(&args.what)?;
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let tuning = {
        let bar = Bar::new(&format!("{} {}", scenario.id, args.controller), &interrupt);
        let options = scenario::options(&args.what, "sim");
        let progress = |progress| bar.show(progress);
        let (registry, stop) = (leeward_lab::registry(), interrupt.flag());
        tune::tune(&scenario, &registry, (&args.controller, args.draws), &options, &progress, stop)?
    };
    interrupt.finish()?;
    if args.json {
        return stdout::print(&as_json(&tuning).to_string());
    }
    stdout::print(&text(&tuning))
}

/// Formats the result as comments and TOML, so that all of it can be pasted into a scenario.
fn text(tuning: &Tuning) -> String {
    let mut text = String::new();
    for workload in &tuning.workloads {
        let head = format!(
            "{}, service {}, {} clients: {} sets, by goodput. The best has the highest goodput; within {:.1} % of it, the \
             lowest p99 decides.",
            tuning.label,
            workload.service,
            workload.clients,
            workload.candidates.len(),
            100.0 * tune::TIE
        );
        text += &comment(&wrap(&head, 0, WIDTH - 2), "");
        text += &comment(&best_first(workload), "  ");
        text += &comment(&wrap(&recommendation(workload), 0, WIDTH - 2), "");
        if let Some(retest) = &workload.retest {
            text += &comment(&again(retest), "  ");
        }
    }
    text + "\n" + &tuning.to_toml()
}

fn comment(text: &str, indent: &str) -> String {
    text.lines().map(|line| format!("# {indent}{line}\n")).collect()
}

fn best_first(workload: &TunedWorkload) -> String {
    let mut order: Vec<usize> = (0..workload.candidates.len()).collect();
    let goodput = |index: &usize| workload.candidates[*index].goodput_ratio;
    let key = |index: &usize| (*index == workload.best, workload.candidates[*index].settled);
    order.sort_by(|a, b| key(b).cmp(&key(a)).then(goodput(b).total_cmp(&goodput(a))));
    let mut rank = 0..;
    order.retain(|index| rank.next().is_some_and(|rank| rank < CANDIDATES_SHOWN) || *index == OWN);
    let rows = order.iter().map(|index| (&workload.candidates[*index], *index == workload.best, *index == OWN));
    table(rows)
}

/// Says which set is recommended, and why.
fn recommendation(workload: &TunedWorkload) -> String {
    match &workload.retest {
        None => "No set is better than the scenario's own. Keep the scenario as it is.".into(),
        Some(retest) if retest.is_confirmed() => {
            format!("The best is also better than the scenario's own at each of {RETEST_SEEDS} other seeds. Use it:")
        }
        Some(retest) if retest.wins == 0 => {
            format!("The best is better at none of {RETEST_SEEDS} other seeds. Keep the scenario as it is.")
        }
        Some(retest) => format!(
            "The best is better at only {} of {RETEST_SEEDS} other seeds: as far as these tell, the scenario's own set is as \
             good. Keep the scenario as it is.",
            retest.wins
        ),
    }
}

/// Table of both sets on other seeds.
fn again(retest: &Retest) -> String {
    table([(&retest.best, true, false), (&retest.own, false, true)].into_iter())
}

/// Table of sets, with whether each is the best and the scenario's own.
fn table<'a>(rows: impl Iterator<Item = (&'a Candidate, bool, bool)>) -> String {
    let mut table =
        Table::new(&[("goodput/capacity", Align::Right), ("p99 us", Align::Right), ("parameters", Align::Left)]);
    for (candidate, is_best, is_own) in rows {
        let names = [(is_best, "best"), (is_own, "the scenario's own"), (!candidate.settled, "did not settle")];
        let names = names.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let params: Vec<String> = candidate.params.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let parts = [names, params.join(", ")];
        table.row(vec![
            format!("{:.4}", candidate.goodput_ratio),
            format!("{:.1}", candidate.p99_us),
            parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(": "),
        ]);
    }
    table.to_string()
}

fn as_json(tuning: &Tuning) -> Value {
    let workload = |workload: &TunedWorkload| {
        json!({
            "service": workload.service,
            "clients": workload.clients,
            "best": workload.best,
            "own": OWN,
            "recommended": workload.recommended(),
            "retest": workload.retest.as_ref().map(|retest| json!({
                "seeds": RETEST_SEEDS,
                "wins": retest.wins,
                "best": candidate(&retest.best),
                "own": candidate(&retest.own),
            })),
            "candidates": workload.candidates.iter().map(candidate).collect::<Vec<_>>(),
        })
    };
    json!({
        "scenario": tuning.scenario,
        "label": tuning.label,
        "workloads": tuning.workloads.iter().map(workload).collect::<Vec<_>>(),
    })
}

fn candidate(candidate: &Candidate) -> Value {
    let params: Map<String, Value> =
        candidate.params.iter().map(|(name, value)| (name.clone(), raw_json(value))).collect();
    json!({ "params": params, "goodput_ratio": candidate.goodput_ratio, "p99_us": candidate.p99_us, "settled": candidate.settled })
}

fn raw_json(value: &RawParam) -> Value {
    match value {
        RawParam::Text(text) => text.as_str().into(),
        RawParam::Number(number) => (*number).into(),
        RawParam::Integer(number) => (*number).into(),
        RawParam::Switch(on) => (*on).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(goodput_ratio: f64, p99_us: f64) -> Candidate {
        let params =
            if p99_us == 200.0 { Vec::new() } else { vec![("target".into(), RawParam::Integer(p99_us as i64))] };
        Candidate { params, goodput_ratio, p99_us, settled: true }
    }

    /// Twenty sets of which the scenario's own is the worst, and the best ties with the second.
    fn found(wins: u32) -> Tuning {
        let others = (1..20).map(|index| set(0.9 + f64::from(index) * 1e-3, 300.0 - f64::from(index)));
        let mut candidates: Vec<Candidate> = std::iter::once(set(0.8, 200.0)).chain(others).collect();
        candidates[18].p99_us = 100.0;
        let retest = Retest { best: set(0.85, 100.0), own: set(0.86, 200.0), wins };
        let workload =
            TunedWorkload { service: "exp:10us".into(), clients: 50, candidates, best: 18, retest: Some(retest) };
        Tuning { scenario: "s".into(), label: "seda".into(), command: "c".into(), workloads: vec![workload] }
    }

    #[test]
    fn the_scenarios_own_set_is_shown_with_the_rule_of_the_choice() {
        let text = text(&found(5));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("#  ") && !line.contains("p99")).collect();
        assert_eq!(rows.len(), CANDIDATES_SHOWN + 1 + 2, "{text}");
        assert!(rows[0].ends_with("best: target = 282") && rows[0].contains("0.9180   100.0"), "{text}");
        assert!(rows[10].ends_with("200.0  the scenario's own"), "{text}");
        let words = text.replace("\n# ", " ");
        assert!(words.contains("within 0.2 % of it, the lowest p99 decides"), "{text}");
        assert!(words.contains("[[controller.tuned]]") && words.contains("Use it:"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn a_best_set_that_was_lucky_is_not_recommended() {
        let (found, text) = (found(3), text(&found(3)));
        assert!(
            text.replace("\n# ", " ")
                .contains("better at only 3 of 5 other seeds: as far as these tell, the scenario's own"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        let workload = &as_json(&found)["workloads"][0];
        assert_eq!((&workload["best"], &workload["own"], &workload["recommended"]), (&json!(18), &json!(0), &json!(0)));
        assert_eq!((&workload["retest"]["wins"], &workload["retest"]["own"]["p99_us"]), (&json!(3), &json!(200.0)));
    }
}
