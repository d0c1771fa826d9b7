//! `leeward tune`: searches the parameters under which a controller serves a scenario best.

use leeward_core::params::RawParam;
use leeward_lab::tune::{self, Candidate, TunedWorkload, Tuning};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::scenario::ScenarioArgs;
use crate::table::{Align, Table};
use crate::{scenario, stdout};

/// Maximum of candidates that are shown per workload.
const CANDIDATES_SHOWN: usize = 10;

/// Search for the best parameters of a controller in a scenario
///
/// Tries sets of parameters, drawn over all of the controller's durations and numbers and then
/// around the best set, and prints the best one as TOML for the scenario. Every controller gets the
/// same number of sets. The best parameters have the highest goodput over the scenario's demands at
/// and above capacity, or over all if there are none.
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
        text += &format!("# {}, service {}, {} clients\n", tuning.label, workload.service, workload.clients);
        text += &best_first(workload).lines().map(|line| format!("#   {line}\n")).collect::<String>();
    }
    text + "\n" + &tuning.to_toml()
}

fn best_first(workload: &TunedWorkload) -> String {
    let mut table =
        Table::new(&[("goodput/capacity", Align::Right), ("p99 us", Align::Right), ("parameters", Align::Left)]);
    let mut order: Vec<usize> = (0..workload.candidates.len()).collect();
    let goodput = |index: &usize| workload.candidates[*index].goodput_ratio;
    let key = |index: &usize| (*index == workload.best, workload.candidates[*index].settled);
    order.sort_by(|a, b| key(b).cmp(&key(a)).then(goodput(b).total_cmp(&goodput(a))));
    for candidate in order.iter().take(CANDIDATES_SHOWN).map(|index| &workload.candidates[*index]) {
        let params: Vec<String> = candidate.params.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let settled = if candidate.settled { "" } else { "did not settle: " };
        table.row(vec![
            format!("{:.4}", candidate.goodput_ratio),
            format!("{:.1}", candidate.p99_us),
            settled.to_string() + &params.join(", "),
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
