//! `leeward league`: benchmarks every controller in every case, relative to the achievable goodput.

use std::path::PathBuf;

use leeward_lab::benchmark::{
    BenchmarkCase, CaseResult, Ranking, builtin_cases, markdown, random_case, rankings, run_case,
};
use leeward_lab::run::{Options, Progress, RunError};

use super::league_proxy::league_proxy;
use super::output_files;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::scenario::SEED_MAX;
use crate::stdout;

/// Benchmark every controller in all scenarios and in random ones, relative to the oracle
///
/// Runs each controller with its default parameters, in the built-in scenarios (cores and locks;
/// not tiers, graphs and replicas) and in scenarios that are drawn from a seed. A scenario's own
/// tuned variants run in it, too. The table has each controller's goodput as a share of the
/// oracle's and of the best other controller's: the median, the worst tenth, the worst. It also
/// counts lock-outs; cases in which the 99th percentile was late, but the oracle's was not; and
/// among these the cases in which another controller was in time with as much goodput. A controller
/// that had not settled in a case is not compared in it.
#[derive(Debug, clap::Args)]
#[command(after_help = LEAGUE)]
pub(crate) struct LeagueArgs {
    /// Only scenarios whose id contains this, such as `lk-`; may be repeated
    #[arg(long = "scenario", value_name = "PART")]
    scenarios: Vec<String>,
    /// Number of random scenarios; by default 1,000, with --quick 20, with --scenario none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    random: Option<u32>,
    /// No built-in scenarios
    #[arg(long, conflicts_with = "scenarios")]
    random_only: bool,
    /// Seed of the runs, and of the first random scenario
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: u64,
    /// Two points of each scenario, measured less precisely
    #[arg(long)]
    quick: bool,
    /// Folder for league.md and league.json; both are updated during the run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run nothing: read the league.json of an earlier run; may be repeated, to merge several runs
    /// into one table
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "random", "random_only", "seed", "quick", "threads"])]
    join: Vec<PathBuf>,
    /// Benchmark the concurrency limits of a proxy in random cases, relative to the best static
    /// number of each
    #[arg(long, conflicts_with_all = ["scenarios", "random_only", "quick", "out", "join", "check", "threads"])]
    proxy: bool,
    /// Print the results of --proxy as JSON
    #[arg(long, requires = "proxy")]
    json: bool,
    /// Fail if `auto` locks out in any case
    #[arg(long)]
    check: bool,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

const LEAGUE: &str = "\
Examples:
  leeward league --quick                               minutes
  leeward league --out docs                            everything, with 1,000 random scenarios: hours
  leeward league --scenario lk-                        one family of scenarios
  leeward league --random-only --random 50 --seed 7    random scenarios only, from seeds 7 to 56
  leeward league --proxy --random 20                   concurrency limits of a proxy: a minute
  leeward league --join a/league.json --join b/league.json --out docs
                                                       one table of two runs";

/// Random cases between two writes of the results. The run can be interrupted at any time, and a
/// random case is short.
const SAVE_INTERVAL: usize = 20;

/// Runs the command.
pub(crate) fn league(args: &LeagueArgs) -> Result<(), Failure> {
    if args.proxy {
        return league_proxy(args.seed, args.random.unwrap_or(1_000), args.json);
    }
    if let Some(folder) = &args.out {
        output_files::check_folder(folder, &["league.json", "league.md"])?;
    }
    if !args.join.is_empty() {
        return finish(args, &merge_files(&args.join)?);
    }
    let BenchmarkRun { matches, cases: scenes, total } = run_all(args)?;
    let is_whole = scenes == total;
    if matches.is_empty() && !is_whole {
        return Err(Failure::Interrupted);
    }
    finish(args, &BenchmarkFile { command: command(args), matches })?;
    if is_whole {
        Ok(())
    } else {
        Err(Failure::Partial(anyhow::anyhow!("interrupted after {scenes} of {total} scenarios")))
    }
}

/// Results of the cases that have run; fewer than `total` after an interrupt.
struct BenchmarkRun {
    matches: Vec<CaseResult>,
    cases: usize,
    total: usize,
}

/// Results, and the command that produced them. The file league.json also has the table, which
/// follows from the results.
#[derive(serde::Deserialize)]
struct BenchmarkFile {
    command: String,
    matches: Vec<CaseResult>,
}

/// Merges the results of several files. A case that is in two files would count twice, so it is an
/// error.
fn merge_files(files: &[PathBuf]) -> Result<BenchmarkFile, Failure> {
    let mut all = BenchmarkFile { command: String::new(), matches: Vec::new() };
    for path in files {
        let refuse = |message: String| Failure::Input(anyhow::anyhow!("--join {}: {message}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let no_league = |error| refuse(format!("{error}; accepted: a league.json of `leeward league --out`"));
        let BenchmarkFile { command, matches } = serde_json::from_slice(&bytes).map_err(no_league)?;
        if let Some(twice) = matches.iter().find(|one| all.matches.iter().any(|known| known.scene == one.scene)) {
            return Err(refuse(format!("`{}` is also in an earlier file", twice.scene)));
        }
        let between = if all.command.is_empty() { "" } else { "`, `" };
        all.command += &format!("{between}{command}");
        all.matches.extend(matches);
    }
    Ok(all)
}

/// Runs all requested cases, and saves the results from time to time.
fn run_all(args: &LeagueArgs) -> Result<BenchmarkRun, Failure> {
    let registry = leeward_lab::registry();
    let picked = if args.random_only { Vec::new() } else { builtin_cases(&args.scenarios, args.quick)? };
    let drawn = args.random.unwrap_or(match (args.scenarios.is_empty(), args.quick) {
        (false, _) => 0,
        (true, true) => 20,
        (true, false) => 1_000,
    });
    let nobody = if args.random_only { drawn == 0 } else { picked.is_empty() };
    if nobody {
        let message = "no scenario has that in its id, or only scenarios with tiers, graphs, replicas, kinds or measured services";
        let message = if args.random_only { "--random: must not be 0 with --random-only" } else { message };
        return Err(Failure::Input(anyhow::anyhow!("{message} (`leeward list` shows the scenarios)")));
    }
    // An interrupt stops runs at once; the table of completed cases is still written.
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let options = Options { seed: args.seed, threads: args.threads.map(usize::from), ..Options::default() };
    let total = picked.len() + drawn as usize;
    let (mut matches, mut played) = (Vec::new(), 0);
    {
        let bar = Bar::new("league", &interrupt);
        let slow = picked.len();
        let drawn = (0..u64::from(drawn)).map(|index| random_case(args.seed.wrapping_add(index), &registry));
        let all = picked.into_iter().map(Ok).chain(drawn);
        for (done, scene) in all.enumerate() {
            let scene: BenchmarkCase = scene?;
            bar.show(Progress { done, total, is_training: false });
            match run_case(&scene, &registry, &options, interrupt.flag()) {
                Err(RunError::Cancelled) => break,
                result => matches.extend(result?),
            }
            played = done + 1;
            let is_due = done < slow || (done - slow) % SAVE_INTERVAL == 0;
            if let Some(folder) = args.out.as_ref().filter(|_| is_due) {
                save(&command(args), folder, &matches, &rankings(&matches))?;
            }
        }
    }
    // After an interrupt the results so far are reported.
    let _ = interrupt.finish();
    Ok(BenchmarkRun { matches, cases: played, total })
}

/// Writes and prints the table, and checks it if requested.
fn finish(args: &LeagueArgs, played: &BenchmarkFile) -> Result<(), Failure> {
    let BenchmarkFile { command, matches } = played;
    let table = rankings(matches);
    if let Some(folder) = &args.out {
        save(command, folder, matches, &table)?;
    }
    stdout::print(&text(matches, &table))?;
    let locked = table.iter().find(|standing| standing.controller == "auto" && standing.lock_outs > 0);
    match locked.filter(|_| args.check) {
        Some(standing) => Err(Failure::Runtime(anyhow::anyhow!("`auto` locked out in {} matches", standing.lock_outs))),
        None => Ok(()),
    }
}

/// Command line that repeats this run.
fn command(args: &LeagueArgs) -> String {
    let mut command = String::from("leeward league");
    if args.quick {
        command += " --quick";
    }
    if args.random_only {
        command += " --random-only";
    }
    args.scenarios.iter().for_each(|part| command += &format!(" --scenario {part}"));
    if let Some(count) = args.random {
        command += &format!(" --random {count}");
    }
    if args.seed != 1 {
        command += &format!(" --seed {}", args.seed);
    }
    command
}

fn save(command: &str, folder: &std::path::Path, matches: &[CaseResult], table: &[Ranking]) -> Result<(), Failure> {
    let all = serde_json::json!({ "command": command, "standings": table, "matches": matches });
    output_files::write_json(folder, "league.json", &all)?;
    output_files::write_into(folder, "league.md", &markdown(command, matches, table))
}

fn text(matches: &[CaseResult], table: &[Ranking]) -> String {
    let mut text = format!(
        "{} matches; goodput as a share: median, worst tenth, worst\n\n{:<12} {:^20} {:^20} {:>9} {:>9} {:>6} {:>9}\n",
        matches.len(),
        "",
        "of the oracle's",
        "of the best other's",
        "lock-outs",
        "p99 late",
        "alone",
        "unsettled"
    );
    for Ranking { controller, of_oracle, of_best, lock_outs, too_late, late_alone, unsettled, .. } in table {
        text += &format!(
            "{controller:<12} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {lock_outs:>9} {too_late:>9} {late_alone:>6} {unsettled:>9}\n",
            of_oracle.median, of_oracle.tenth, of_oracle.worst, of_best.median, of_best.tenth, of_best.worst
        );
    }
    text
}
