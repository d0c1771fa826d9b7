//! `leeward verdicts`: judges the papers' claims over all scenarios, writes their table and page,
//! and checks for changed verdicts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_lab::BuiltinScenario;
use leeward_lab::run::Progress;
use leeward_lab::verdicts::{
    Expectations, Extent, VerdictsError, figure_notes, fill_bounds, fill_remedies, judge_scenario, markdown, probe,
    scenarios, sensitivity,
};
use leeward_outcome::results::Verdict;
use leeward_outcome::sensitivity::{ScenarioSensitivity, Sensitivity};
use leeward_outcome::verdicts::{Provenance, ScenarioVerdicts, VerdictCounts, Verdicts};
use serde::de::DeserializeOwned;
use time::OffsetDateTime;

use super::output_files;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::scenario::SEED_MAX;
use crate::stdout;

/// Judge the papers' claims over all scenarios; write the table of verdicts, and a page
///
/// Every scenario runs twice: with the algorithms as published, by which the papers' claims are
/// judged, and with our additions, for comparison. A verdict depends on all seeds: `reproduced` if
/// the 95 % interval of the median lies within the accepted range, `not reproduced` if it lies
/// outside, `undecided` if it crosses a bound or a run had not settled.
///
/// Scenarios that are not selected keep their earlier verdicts in the folder. A long run can be
/// divided: `--part 1/8` to `--part 8/8`, on one machine or several, each to a folder of its own,
/// then `--join` them. An interrupted run keeps the scenarios that it has judged, and `--continue`
/// goes on with the others; the runs of a scenario begin anew.
#[derive(Debug, clap::Args)]
#[command(after_help = VERDICTS)]
pub(crate) struct VerdictsArgs {
    /// Judge only scenarios whose id contains this, such as `bw-` or `lk-hoover`; may be repeated
    #[arg(long = "scenario", value_name = "PART")]
    pub(crate) scenarios: Vec<String>,
    /// Seeds per point
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// Judge only one part of the selected scenarios, such as 3/8
    #[arg(long, value_name = "K/N")]
    pub(crate) part: Option<Part>,
    /// Keep the folder's verdicts of scenarios that this version judged by the same command
    #[arg(long = "continue", conflicts_with_all = ["check", "record", "sensitivity", "redraw", "join"])]
    pub(crate) go_on: bool,
    /// Run nothing: add the verdicts of this folder to those in --out; may be repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = ["scenarios", "part", "quick", "overrides", "check", "record", "sensitivity", "redraw"])]
    pub(crate) join: Vec<PathBuf>,
    /// First seed; baselines were tuned on seeds from 1, and are judged on other seeds
    #[arg(long, value_name = "N", default_value_t = FIRST_SEED, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
    /// Run fewer points and measure them less precisely, as the scenarios' `quick` sections define
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change one value of every scenario, such as server.costs.reject=100ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Folder for verdicts.md, verdicts.json and verdicts.html
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub(crate) out: PathBuf,
    /// Run the scenarios of this file, and fail if a verdict differs from it; writes nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "part", "quick", "overrides", "record"])]
    pub(crate) check: Option<PathBuf>,
    /// Write the verdicts of a quick run to this file, for --check
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Judge the scenarios under changed assumptions, such as half and twice each invented cost,
    /// and write a row per claim and a column per assumption to sensitivity.md instead
    #[arg(long, conflicts_with_all = ["check", "record", "overrides"])]
    pub(crate) sensitivity: bool,
    /// With --sensitivity: only claims of the papers that the folder's table has as not reproduced,
    /// so that only runs that these need are simulated
    #[arg(long, requires = "sensitivity")]
    pub(crate) missed: bool,
    /// Run nothing: rewrite the table and the page from the verdicts in the folder
    #[arg(long, conflicts_with_all = ["scenarios", "part", "check", "record", "overrides", "sensitivity"])]
    pub(crate) redraw: bool,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// Files of the table of verdicts.
const TABLE_FILES: [&str; 3] = ["verdicts.json", "verdicts.md", "verdicts.html"];

/// Default of `--seed`.
const FIRST_SEED: u64 = 101;

const VERDICTS: &str = "\
Examples:
  leeward verdicts                                     all scenarios in full, ten seeds: hours
  leeward verdicts --quick                             fewer points, less precisely
  leeward verdicts --scenario bw-overall --seeds 20    one scenario; the others' rows stay
  leeward verdicts --part 1/8 --continue --out part-1  an eighth of all; called again, it goes on
  leeward verdicts --join part-1 --join part-2         the table of these parts, in docs
  leeward verdicts --set server.costs.reject=100ns --quick --out /tmp/dear-rejects
                                                       which verdicts depend on a cost
  leeward verdicts --sensitivity --quick --seeds 5 --scenario bw-overall
                                                       which verdicts depend on any cost, the network or arrivals
  leeward verdicts --sensitivity --missed --quick --seeds 3
                                                       what would turn each claim that is not reproduced
  leeward verdicts --redraw                            rewrites docs/verdicts.html
  leeward verdicts --check experiments/verdicts-quick.txt
                                                       what CI runs: any flip fails, with exit code 1";

/// Part `number` of `of` parts, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    number: usize,
    of: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Part { number, of }),
            _ => Err("expected a part and the number of parts, such as 3/8".into()),
        }
    }
}

/// Runs the command.
pub(crate) fn verdicts(args: &VerdictsArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    match (&args.check, &args.record) {
        _ if args.redraw => redraw(args),
        _ if !args.join.is_empty() => join(args),
        _ if args.sensitivity => run_sensitivity(args, &interrupt),
        (Some(file), _) => check(file, args, &interrupt),
        (None, Some(file)) => record(file, args, &interrupt),
        (None, None) => table(args, &interrupt),
    }
}

/// Judges the scenarios, and writes the table and the page.
fn table(args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    output_files::check_folder(&args.out, &TABLE_FILES)?;
    let kept: Verdicts = load_json(&args.out, "verdicts.json")?;
    let mut picked = pick_scenarios(args)?;
    let all = picked.len();
    if args.go_on {
        let is_judged = |id: &str| {
            let judged = kept.scenarios.iter().find(|scenario| scenario.id == id).map(|found| &found.provenance);
            judged.is_some_and(|made| made.version == version() && made.command == scenario_command(args, id))
        };
        picked.retain(|builtin| !is_judged(builtin.id));
    }
    let extent = extent(args, args.quick);
    let before = all - picked.len();
    let mut done = before;
    let judged = judge(&picked, &extent, interrupt, |so_far| {
        done = before + so_far.len();
        save(args, &kept, so_far)
    });
    let judged = judged.and_then(|judged| interrupt.finish().map(|()| judged));
    let hint = if done < all { "; --continue goes on with the others" } else { "" };
    let judged = judged.map_err(|error| interrupted(error, done, all, hint))?;
    print_counts(args, &save(args, &kept, &judged)?)
}

/// Only whole scenarios are kept: says so after an interruption.
fn interrupted(error: Failure, done: usize, all: usize, hint: &str) -> Failure {
    match error {
        Failure::Interrupted => {
            Failure::Partial(anyhow!("interrupted; {done} of {all} scenarios are kept, whole ones only{hint}"))
        }
        error => error,
    }
}

/// Adds the verdicts of other folders to those in `--out`.
fn join(args: &VerdictsArgs) -> Result<(), Failure> {
    output_files::check_folder(&args.out, &TABLE_FILES)?;
    let mut joined: Vec<ScenarioVerdicts> = Vec::new();
    let mut command = String::new();
    for folder in &args.join {
        let part: Verdicts = load_json(folder, "verdicts.json")?;
        let Some(first) = part.scenarios.first() else {
            return Err(Failure::Input(anyhow!("{} has no verdicts.json", folder.display())));
        };
        let refuse = |why: String| Err(Failure::Input(anyhow!("--join {}: {why}", folder.display())));
        if let Some(other) = joined.first()
            && (other.seeds, other.quick) != (first.seeds, first.quick)
        {
            return refuse(
                "its runs have other seeds than those of the folders before, or only one side is quick".into(),
            );
        }
        if let Some(twice) = part.scenarios.iter().find(|one| joined.iter().any(|other| other.id == one.id)) {
            return refuse(format!("`{}` is in an earlier folder, too", twice.id));
        }
        command = part.command;
        joined.extend(part.scenarios);
    }
    let kept: Verdicts = load_json(&args.out, "verdicts.json")?;
    let scenarios = merge_newest(&joined, &kept.scenarios, |one| &one.id);
    print_counts(args, &write(&args.out, Verdicts { command, scenarios })?)
}

fn print_counts(args: &VerdictsArgs, all: &Verdicts) -> Result<(), Failure> {
    let tally = VerdictCounts::count(all, |_| true);
    stdout::print(&format!(
        "{} claims: {} reproduced, {} not reproduced, {} undecided, {} not measured\nTable in {}\n",
        tally.total(),
        tally.reproduced,
        tally.not_reproduced,
        tally.undecided,
        tally.not_measured,
        args.out.join("verdicts.md").display()
    ))?;
    // A comparison with a rival at less than its best is worth nothing, so this is an error.
    match all.unfair().as_slice() {
        [] => Ok(()),
        unfair => Err(Failure::Runtime(anyhow!("a rival is worse as tuned than untuned: {}", unfair.join(", ")))),
    }
}

/// Rewrites the table and the page from the folder's verdicts and worlds. The recorded command
/// stays the original one.
fn redraw(args: &VerdictsArgs) -> Result<(), Failure> {
    let kept: Verdicts = load_json(&args.out, "verdicts.json")?;
    if kept.scenarios.is_empty() {
        return Err(Failure::Input(anyhow!("{} has no verdicts.json", args.out.display())));
    }
    let worlds: Sensitivity = load_json(&args.out, "sensitivity.json")?;
    write(&args.out, kept)?;
    if !worlds.scenarios.is_empty() {
        write_worlds(&args.out, &worlds)?;
    }
    stdout::print(&format!("Table in {}\n", args.out.join("verdicts.md").display()))
}

/// Compares the verdicts with the expectations of a file.
fn check(file: &Path, args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()));
    let text = text.map_err(Failure::Input)?;
    let expected = Expectations::parse(&text);
    let expected = expected.map_err(|error| Failure::Input(anyhow!("{}: {error}", file.display())))?;
    let all = scenarios(&expected.scenarios);
    let find = |id: &String| {
        let known = all.iter().find(|known| known.id == id).copied();
        known.ok_or_else(|| Failure::Input(anyhow!("{}: no scenario is called `{id}`", file.display())))
    };
    let picked: Vec<&BuiltinScenario> = expected.scenarios.iter().map(find).collect::<Result<_, _>>()?;
    let extent = expected.extent(args.threads.map(usize::from));
    let judged = judge(&picked, &extent, interrupt, |_| Ok(Verdicts::default()))?;
    let flips = expected.flips(&Expectations::from_verdicts(&judged, &extent));
    if flips.is_empty() {
        let claims: usize = judged.iter().map(|scenario| scenario.claims.len()).sum();
        return stdout::print(&format!("{claims} claims of {} scenarios: no verdict has flipped\n", judged.len()));
    }
    stdout::print(&(flips.join("\n") + "\n"))?;
    Err(Failure::Runtime(anyhow!("{} verdicts differ from {}", flips.len(), file.display())))
}

/// Writes the verdicts as expectations for `--check`.
fn record(file: &Path, args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    output_files::check_file("--record", file)?;
    let extent = extent(args, true);
    let judged = judge(&pick_scenarios(args)?, &extent, interrupt, |_| Ok(Verdicts::default()))?;
    output_files::write(file, &Expectations::from_verdicts(&judged, &extent).text())
}

/// Judges the scenarios in all worlds, and writes the verdicts that flip. Scenarios that are not
/// picked keep the folder's results.
fn run_sensitivity(args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    output_files::check_folder(&args.out, &["sensitivity.json", "sensitivity.md"])?;
    let picked = pick_scenarios(args)?;
    let kept: Sensitivity = load_json(&args.out, "sensitivity.json")?;
    let judged: Verdicts = load_json(&args.out, "verdicts.json")?;
    let has_wanted = |scenario: &str| !args.missed || missed(&judged, scenario).next().is_some();
    let picked: Vec<_> = picked.into_iter().filter(|builtin| has_wanted(builtin.id)).collect();
    if picked.is_empty() {
        let why = if judged.scenarios.is_empty() {
            "there is no table (verdicts.json); accepted: --out docs, or a folder that `leeward verdicts` has written"
        } else {
            "no claim of these scenarios is not reproduced"
        };
        return Err(Failure::Input(anyhow!("--missed: in {} {why}", args.out.display())));
    }
    let (extent, registry) = (extent(args, args.quick), leeward_lab::registry());
    let mut probed = Vec::new();
    for (index, builtin) in picked.iter().enumerate() {
        let bars = WorldBars::new(builtin.id, (index, picked.len()), interrupt);
        let wanted = |claim: &str| !args.missed || missed(&judged, builtin.id).any(|id| id == claim);
        let show = |world: &str, progress: Progress| bars.show(world, progress);
        let one = probe(builtin, &wanted, &extent, &registry, &show, interrupt.flag());
        probed.push(one.map_err(|error| interrupted(failure(error), index, picked.len(), ""))?);
        save_worlds(args, &kept, &probed)?;
    }
    interrupt.finish().map_err(|error| interrupted(error, picked.len(), picked.len(), ""))?;
    stdout::print(&format!("Table in {}\n", args.out.join("sensitivity.md").display()))
}

/// Ids of a scenario's claims that are a paper's and not reproduced.
fn missed<'a>(judged: &'a Verdicts, scenario: &'a str) -> impl Iterator<Item = &'a str> {
    let of_scenario = judged.scenarios.iter().filter(move |one| one.id == scenario).flat_map(|one| &one.claims);
    let missed = of_scenario.filter(|claim| !claim.ours && claim.verdict() == Verdict::NotReproduced);
    missed.map(|claim| claim.published.id.as_str())
}

fn save_worlds(args: &VerdictsArgs, kept: &Sensitivity, probed: &[ScenarioSensitivity]) -> Result<(), Failure> {
    let scenarios = merge_newest(probed, &kept.scenarios, |one| &one.id);
    let quick = scenarios.iter().any(|one| one.quick);
    write_worlds(&args.out, &Sensitivity { command: format!("{} --sensitivity", command_line(args, quick)), scenarios })
}

fn write_worlds(folder: &Path, all: &Sensitivity) -> Result<(), Failure> {
    output_files::write_json(folder, "sensitivity.json", all)?;
    output_files::write_into(folder, "sensitivity.md", &sensitivity(all))
}

/// Progress bars of the worlds, one after the other.
struct WorldBars<'a> {
    name: String,
    interrupt: &'a Interrupt,
    now: Mutex<Option<(String, Bar)>>,
}

impl<'a> WorldBars<'a> {
    fn new(id: &str, (index, all): (usize, usize), interrupt: &'a Interrupt) -> WorldBars<'a> {
        WorldBars { name: format!("{id} ({} of {all})", index + 1), interrupt, now: Mutex::new(None) }
    }

    fn show(&self, world: &str, progress: Progress) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_ref().is_none_or(|(shown, _)| shown != world) {
            *now = Some((world.into(), Bar::new(&format!("{}: {world}", self.name), self.interrupt)));
        }
        if let Some((_, bar)) = now.as_ref() {
            bar.show(progress);
        }
    }
}

fn extent(args: &VerdictsArgs, quick: bool) -> Extent {
    Extent {
        seeds: args.seeds,
        seed: args.seed,
        quick,
        overrides: args.overrides.clone(),
        threads: args.threads.map(usize::from),
    }
}

fn pick_scenarios(args: &VerdictsArgs) -> Result<Vec<&'static BuiltinScenario>, Failure> {
    let picked = scenarios(&args.scenarios);
    if picked.is_empty() {
        return Err(Failure::Input(anyhow!("no scenario has that in its id (`leeward list` shows all)")));
    }
    // In turns: neighbours are of one figure, and of similar length.
    let Part { number, of } = args.part.unwrap_or(Part { number: 1, of: 1 });
    if number > picked.len() {
        let count = picked.len();
        return Err(Failure::Input(anyhow!("--part {number}/{of} is empty: only {count} scenarios are selected")));
    }
    Ok(picked.into_iter().skip(number - 1).step_by(of).collect())
}

/// Judges the scenarios; calls `save` after each with the verdicts so far.
fn judge(
    picked: &[&BuiltinScenario],
    extent: &Extent,
    interrupt: &Interrupt,
    mut save: impl FnMut(&[ScenarioVerdicts]) -> Result<Verdicts, Failure>,
) -> Result<Vec<ScenarioVerdicts>, Failure> {
    let registry = leeward_lab::registry();
    let mut judged = Vec::new();
    for (index, builtin) in picked.iter().enumerate() {
        let bar = Bar::new(&format!("{} ({} of {})", builtin.id, index + 1, picked.len()), interrupt);
        let start = cpu_time();
        let one = judge_scenario(builtin, extent, &registry, &|progress| bar.show(progress), interrupt.flag());
        let mut one = one.map_err(failure)?;
        one.provenance = Provenance {
            command: extent_command(extent) + " --scenario " + builtin.id,
            version: version(),
            date: OffsetDateTime::now_utc().date().to_string(),
            cpu_s: (cpu_time() - start).as_secs_f64().round(),
        };
        judged.push(one);
        save(&judged)?;
    }
    Ok(judged)
}

fn failure(error: VerdictsError) -> Failure {
    match error {
        VerdictsError::Scenario(error) => error.into(),
        VerdictsError::Run(error) => error.into(),
        _ => Failure::Runtime(anyhow!("{error}")),
    }
}

/// Newest result of each scenario: of this run, or else the earlier one. The order is that of the
/// papers' figures.
fn merge_newest<T: Clone>(now: &[T], before: &[T], id: impl Fn(&T) -> &str) -> Vec<T> {
    let find = |all: &[T], scenario: &str| all.iter().find(|one| id(one) == scenario).cloned();
    let known = leeward_lab::builtin_scenarios().iter();
    known.filter_map(|known| find(now, known.id).or_else(|| find(before, known.id))).collect()
}

/// Reads a file of earlier results; empty if it does not exist.
fn load_json<T: Default + DeserializeOwned>(folder: &Path, name: &str) -> Result<T, Failure> {
    let path = folder.join(name);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
        text => text.with_context(|| format!("reading {}", path.display())).map_err(Failure::Input)?,
    };
    let read = serde_json::from_str(&text).with_context(|| format!("{} is no file of verdicts", path.display()));
    read.map_err(Failure::Input)
}

/// Writes the verdicts of `judged`, and those of `kept` for the other scenarios.
fn save(args: &VerdictsArgs, kept: &Verdicts, judged: &[ScenarioVerdicts]) -> Result<Verdicts, Failure> {
    let scenarios = merge_newest(judged, &kept.scenarios, |one| &one.id);
    write(&args.out, Verdicts { command: command(args, kept, judged), scenarios })
}

fn write(folder: &Path, mut all: Verdicts) -> Result<Verdicts, Failure> {
    fill_bounds(&mut all);
    fill_remedies(&mut all, &load_json(folder, "sensitivity.json")?);
    output_files::write_json(folder, "verdicts.json", &all)?;
    output_files::write_into(folder, "verdicts.md", &markdown(&all))?;
    output_files::write_into(folder, "verdicts.html", &leeward_report::render_verdicts(&all, &figure_notes()))?;
    Ok(all)
}

/// Command line that makes all of these verdicts.
fn command(args: &VerdictsArgs, kept: &Verdicts, judged: &[ScenarioVerdicts]) -> String {
    command_line(args, judged.iter().chain(&kept.scenarios).any(|scenario| scenario.quick))
}

fn command_line(args: &VerdictsArgs, quick: bool) -> String {
    extent_command(&extent(args, quick))
}

/// Command line that judges one scenario with the options of `args`.
fn scenario_command(args: &VerdictsArgs, id: &str) -> String {
    command_line(args, args.quick) + " --scenario " + id
}

/// Command line that judges to this extent.
fn extent_command(extent: &Extent) -> String {
    let mut text = String::from("leeward verdicts");
    if extent.quick {
        text += " --quick";
    }
    if extent.seeds != 10 {
        text += &format!(" --seeds {}", extent.seeds);
    }
    if extent.seed != FIRST_SEED {
        text += &format!(" --seed {}", extent.seed);
    }
    extent.overrides.iter().for_each(|given| text += &format!(" --set {given}"));
    text
}

/// Version of this program, with the commit if the build has named it.
fn version() -> String {
    let commit = option_env!("LEEWARD_COMMIT").map_or(String::new(), |commit| format!(" ({commit})"));
    format!("leeward {}{commit}", env!("CARGO_PKG_VERSION"))
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_says_what_is_kept() {
        let text = interrupted(Failure::Interrupted, 2, 5, "; --continue goes on with the others").to_string();
        assert_eq!(text, "interrupted; 2 of 5 scenarios are kept, whole ones only; --continue goes on with the others");
        let other = interrupted(Failure::Runtime(anyhow!("a full disk")), 2, 5, "");
        assert!(matches!(other, Failure::Runtime(_)), "{other}");
    }
}
