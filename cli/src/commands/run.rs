//! `leeward run`: runs a scenario, prints its results as tables or JSON, and writes them with a
//! report to a folder.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_lab::{Results, run};

use super::{output_files, summary};
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::scenario::ScenarioArgs;
use crate::table::{WIDTH, wrap};
use crate::{scenario, stdout};

/// Run an experiment; print its results and write them, with a report, to a folder
///
/// A scenario defines controllers, demands, plots and the paper's claims. The results are the same
/// bytes for the same scenario, seed and version, on any number of threads. Results are written
/// only if all runs succeed. A real run whose clients were late themselves does not measure the
/// server: its row says so, and claims on it are undecided. Exit code 3: no run measured it.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) what: ScenarioArgs,
    /// Where to run: `sim`, the simulated testbed, or `real`, this machine: a server and its
    /// clients over loopback, each on a CPU of its own; capacity and round trip are measured first,
    /// and the simulator predicts each run
    #[arg(long, default_value = "sim", value_parser = parse_plant)]
    pub(crate) plant: String,
    /// Folder for result.json, results.jsonl and report.html; by default `results/` and the
    /// scenario's id
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the scenario for each of these values, such as demand=0.8x,1.2x or
    /// controller=seda,dagor; several of these flags span a grid. Prints a line of JSON per run, in
    /// the grid's order on any number of threads. On several machines: docs/cluster.md
    #[arg(long = "sweep", value_name = "KEY=VALUES", conflicts_with_all = ["out", "json"])]
    pub(crate) sweep: Vec<String>,
}

fn parse_plant(word: &str) -> Result<String, String> {
    match word {
        "sim" | "real" => Ok(word.into()),
        _ => Err("accepted: sim, real".into()),
    }
}

const RUN: &str = "\
Examples:
  leeward run bw-overall                              the whole figure
  leeward run bw-overall --quick                      fewer points, less precisely
  leeward run mine.toml --seed 7 --out /tmp/mine      a scenario of your own
  leeward run bw-overall --set workload.clients=200   one value changed, by its key in the file
  leeward run bw-overall --quick --sweep clients=100,1000 --sweep rtt=10us,30us
  leeward run real-overall --plant real               on this machine's CPUs and sockets
  leeward run bw-overall --quick --json | jq '.claims[] | {id, verdict}'";

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let scenario = scenario::load(&args.what)?;
    let folder = args.out.clone().unwrap_or_else(|| Path::new("results").join(&scenario.id));
    output_files::check_folder(&folder, &output_files::RESULT_FILES)?;
    if args.plant == "real" {
        let measured = scenario.workload.services.iter().filter_map(|service| service.requests.as_ref());
        let warnings: BTreeSet<String> = measured.filter_map(|requests| requests.warning()).collect();
        warnings.iter().for_each(|words| _ = writeln!(std::io::stderr(), "warning: {words}"));
    }
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let results = {
        let bar = Bar::new(&scenario.id, &interrupt);
        let options = scenario::options(&args.what, &args.plant);
        run::run(&scenario, &leeward_lab::registry(), &options, &|progress| bar.show(progress), interrupt.flag())?
    };
    let page = leeward_report::render(&results);
    interrupt.finish()?;
    let report = output_files::write_results(&folder, &results, &page)?;
    stdout::print(&if args.json { json(&results)? } else { text(&results, &folder, &report) })?;
    check_measured(&results.doubts, results.points.len())
}

/// Fails if none of the runs measured the server.
pub(super) fn check_measured(doubts: &[String], runs: usize) -> Result<(), Failure> {
    match doubts {
        // Some runs measured the server. The text names the others, and claims on them are
        // undecided.
        doubts if doubts.len() < runs => Ok(()),
        [] => Ok(()),
        [doubt] => Err(Failure::Unmeasured(anyhow!("{doubt}"))),
        [doubt, more @ ..] => Err(Failure::Unmeasured(anyhow!("{doubt}; {} more such runs", more.len()))),
    }
}

fn json(results: &Results) -> Result<String, Failure> {
    serde_json::to_string(results).context("results as JSON").map_err(Failure::Runtime)
}

fn text(results: &Results, folder: &Path, report: &Path) -> String {
    let doubts: String =
        results.doubts.iter().map(|doubt| wrap(&format!("Not measured: {doubt}."), 0, WIDTH)).collect();
    let mut text = if doubts.is_empty() { doubts } else { doubts + "\n" };
    text += &format!("{}\n\n{}", results.title, summary::points(&results.points));
    let (machines, predictions) = (summary::machines(&results.machines), summary::predictions(&results.points));
    if !machines.is_empty() {
        text += &format!("\n{machines}{predictions}");
    }
    let locks = summary::locks(&results.locks);
    if !locks.is_empty() {
        text += &format!("\nThe locks with the longest waits, at the highest demand\n\n{locks}");
    }
    let kinds = summary::kinds(&results.kinds);
    if !kinds.is_empty() {
        text += &format!("\nThe kinds of requests, at the highest demand\n\n{kinds}");
    }
    if !results.claims.is_empty() {
        text += &format!("\n{}\n\n{}", summary::claims_heading(results), summary::claims(results));
    }
    text + &format!("\nResults in {}\nReport in {}\n", folder.display(), report.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_that_measured_the_server_is_enough() {
        let late = |count: usize| vec!["late".to_string(); count];
        assert!(check_measured(&[], 0).is_ok() && check_measured(&late(11), 12).is_ok());
        let failure = check_measured(&late(12), 12).unwrap_err();
        assert!(matches!(failure, Failure::Unmeasured(_)), "{failure}");
        assert_eq!(failure.to_string(), "late; 11 more such runs");
    }
}
