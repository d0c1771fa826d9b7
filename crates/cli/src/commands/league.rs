//! `leeward league`: every controller in every scene, and what each reached of what could be reached.

use std::path::PathBuf;

use leeward_lab::league::{Match, Scene, Standing, markdown, play, random, scenes, standings};
use leeward_lab::run::{Options, Progress};

use super::target;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, Leaving};
use crate::progress::Bar;
use crate::scenario::SEED_MAX;
use crate::stdout;

/// Let every controller play every scenario, and as many drawn at random, against the oracle
///
/// Each plays with its defaults, on the repository's scenarios (cores and locks; not tiers, graphs and replicas) and on scenes that are
/// drawn from a seed. Variants that a scenario has tuned for itself play in it, too. The table tells what each reached of the
/// oracle's goodput and of that of the best other controller: the median, the worst tenth, the worst; and how often it locked out.
#[derive(Debug, clap::Args)]
#[command(after_help = LEAGUE)]
pub(crate) struct LeagueArgs {
    /// Only the scenarios with this in their id, such as `lk-`; may be repeated
    #[arg(long = "scenario", value_name = "PART")]
    scenarios: Vec<String>,
    /// How many scenes to draw; by default 1,000, with --quick 20, and none where scenarios are picked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    random: Option<u32>,
    /// No scenarios of the repository
    #[arg(long, conflicts_with = "scenarios")]
    random_only: bool,
    /// Seed of the runs, and of the first scene that is drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: u64,
    /// Two points of each scenario, and shorter runs
    #[arg(long)]
    quick: bool,
    /// Folder for league.md and league.json; both are written as the scenes are played
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Fail if `auto` locks out in any match
    #[arg(long)]
    check: bool,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

const LEAGUE: &str = "\
Examples:
  leeward league --quick                               minutes
  leeward league --out docs                            everything, 1,000 random scenes: hours
  leeward league --scenario lk-                        one family of scenarios
  leeward league --random-only --random 50 --seed 7    drawn scenes alone, from the seeds 7 to 56";

/// Drawn scenes between two writings of what was played so far: the run can end at any time, and a drawn scene is short.
const SAVED_EVERY: usize = 20;

/// The command.
pub(crate) fn league(args: &LeagueArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.out {
        target::check_folder(folder)?;
    }
    let registry = leeward_lab::registry();
    let picked = if args.random_only { Vec::new() } else { scenes(&args.scenarios, args.quick)? };
    let drawn = args.random.unwrap_or(match (args.scenarios.is_empty(), args.quick) {
        (false, _) => 0,
        (true, true) => 20,
        (true, false) => 1_000,
    });
    let nobody = if args.random_only { drawn == 0 } else { picked.is_empty() };
    if nobody {
        let words =
            "no scenario has that in its id, or only some with tiers, graphs, replicas, kinds or measured services";
        let words = if args.random_only { "--random: 0 scenes are none to play" } else { words };
        return Err(Failure::Input(anyhow::anyhow!("{words} (`leeward list` shows the scenarios)")));
    }
    let interrupt = Interrupt::listen(Leaving::Soon)?;
    let options = Options { seed: args.seed, threads: args.threads.map(usize::from), ..Options::default() };
    let total = picked.len() + drawn as usize;
    let mut matches: Vec<Match> = Vec::new();
    {
        let bar = Bar::new("league", &interrupt);
        let slow = picked.len();
        let drawn = (0..u64::from(drawn)).map(|index| random(args.seed.wrapping_add(index), &registry));
        let all = picked.into_iter().map(Ok).chain(drawn);
        for (done, scene) in all.enumerate() {
            let scene: Scene = scene?;
            bar.show(Progress { done, total });
            matches.extend(play(&scene, &registry, &options, interrupt.flag())?);
            let is_due = done < slow || (done - slow) % SAVED_EVERY == 0;
            if let Some(folder) = args.out.as_ref().filter(|_| is_due) {
                save(args, folder, &matches, &standings(&matches))?;
            }
        }
    }
    interrupt.finish()?;
    let table = standings(&matches);
    if let Some(folder) = &args.out {
        save(args, folder, &matches, &table)?;
    }
    stdout::print(&text(&matches, &table))?;
    let locked = table.iter().find(|standing| standing.controller == "auto" && standing.lock_outs > 0);
    match locked.filter(|_| args.check) {
        Some(standing) => Err(Failure::Runtime(anyhow::anyhow!("`auto` locked out in {} matches", standing.lock_outs))),
        None => Ok(()),
    }
}

fn save(args: &LeagueArgs, folder: &std::path::Path, matches: &[Match], table: &[Standing]) -> Result<(), Failure> {
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
    let all = serde_json::json!({ "command": command, "standings": table, "matches": matches });
    target::write_json(folder, "league.json", &all)?;
    target::write_into(folder, "league.md", &markdown(&command, matches, table))
}

fn text(matches: &[Match], table: &[Standing]) -> String {
    let mut text = format!(
        "{} matches; goodput as a share: median, worst tenth, worst\n\n{:<12} {:^20} {:^20} {:>9} {:>9}\n",
        matches.len(),
        "",
        "of the oracle's",
        "of the best other's",
        "lock-outs",
        "p99 late"
    );
    for Standing { controller, of_oracle, of_best, lock_outs, too_late, .. } in table {
        text += &format!(
            "{controller:<12} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {lock_outs:>9} {too_late:>9}\n",
            of_oracle.median, of_oracle.tenth, of_oracle.worst, of_best.median, of_best.tenth, of_best.worst
        );
    }
    text
}
