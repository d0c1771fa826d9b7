//! `leeward verdicts`: the papers' claims over all scenarios, judged; their table and page, and the check that none has flipped.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_lab::Builtin;
use leeward_lab::verdicts::{
    Changed, Expectations, Extent, PERTURBATIONS, VerdictsError, judge_scenario, markdown, scenarios, sensitivity,
};
use leeward_outcome::verdicts::{Judged, Tally, Verdicts};

use super::target;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, Leaving};
use crate::progress::Bar;
use crate::scenario::SEED_MAX;
use crate::stdout;

/// Judge the papers' claims over all scenarios; write the table of verdicts, and a page
///
/// Every scenario runs twice: with the algorithms as published, on which the papers' claims are judged, and with our additions, which
/// stand beside them. A verdict is made of all seeds: `reproduced` if the 95 % interval of the median lies within what is accepted,
/// `not reproduced` if it lies outside, `undecided` if it reaches across a bound.
///
/// The scenarios that are not picked keep the verdicts that the folder has from before.
#[derive(Debug, clap::Args)]
#[command(after_help = VERDICTS)]
pub(crate) struct VerdictsArgs {
    /// Judge these scenarios only: a part of their ids, such as `bw-` or `lk-hoover`; may be repeated
    #[arg(long = "scenario", value_name = "PART")]
    pub(crate) scenarios: Vec<String>,
    /// Seeds per point
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// First seed; baselines were tuned on seeds from 1, and are judged on others
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
    /// Fewer and shorter points, as the scenarios' `quick` sections say
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change one value of every scenario, such as server.costs.reject=100ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Folder for verdicts.md, verdicts.json and verdicts.html
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub(crate) out: PathBuf,
    /// Run what this file lists, and fail if a verdict is another than it says; writes nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "quick", "overrides", "record"])]
    pub(crate) check: Option<PathBuf>,
    /// Write the verdicts of a quick run of the picked scenarios as the file that --check reads
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Judge the picked scenarios in worlds that are a little different, half and twice each invented cost, and write the verdicts that flip to
    /// sensitivity.md instead
    #[arg(long, conflicts_with_all = ["check", "record", "overrides"])]
    pub(crate) sensitivity: bool,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

const VERDICTS: &str = "\
Examples:
  leeward verdicts                                     all scenarios in full, ten seeds: hours
  leeward verdicts --quick                             the same, shortened
  leeward verdicts --scenario bw-overall --seeds 20    one scenario; the others' rows stay
  leeward verdicts --set server.costs.reject=100ns --quick --out /tmp/dear-rejects
                                                       which verdicts hang on a cost
  leeward verdicts --sensitivity --quick --scenario bw-overall
                                                       all of these changes, one after the other
  leeward verdicts --check experiments/verdicts-quick.txt
                                                       what CI runs: any flip fails, with exit code 1";

/// The command.
pub(crate) fn verdicts(args: &VerdictsArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen(Leaving::Soon)?;
    match (&args.check, &args.record) {
        _ if args.sensitivity => worlds(args, &interrupt),
        (Some(file), _) => check(file, args, &interrupt),
        (None, Some(file)) => record(file, args, &interrupt),
        (None, None) => table(args, &interrupt),
    }
}

/// Writes the table and the page.
fn table(args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    target::check_folder(&args.out)?;
    let picked = picked(args)?;
    let kept = stored(&args.out)?;
    let extent = extent(args, args.quick);
    let judged = judge(&picked, &extent, interrupt, |so_far| save(args, &kept, so_far))?;
    interrupt.finish()?;
    let all = save(args, &kept, &judged)?;
    let tally = Tally::of(&all, |_| true);
    stdout::print(&format!(
        "{} claims: {} reproduced, {} not reproduced, {} undecided, {} not measured\nTable in {}\n",
        tally.all(),
        tally.reproduced,
        tally.not_reproduced,
        tally.undecided,
        tally.not_measured,
        args.out.join("verdicts.md").display()
    ))
}

/// Compares with what a file expects.
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
    let picked: Vec<&Builtin> = expected.scenarios.iter().map(find).collect::<Result<_, _>>()?;
    let extent = expected.extent(args.threads.map(usize::from));
    let judged = judge(&picked, &extent, interrupt, |_| Ok(Verdicts::default()))?;
    let flips = expected.flips(&Expectations::of(&judged, &extent));
    if flips.is_empty() {
        let claims: usize = judged.iter().map(|scenario| scenario.claims.len()).sum();
        return stdout::print(&format!("{claims} claims of {} scenarios: no verdict has flipped\n", judged.len()));
    }
    stdout::print(&(flips.join("\n") + "\n"))?;
    Err(Failure::Runtime(anyhow!("{} verdicts are not as {} says", flips.len(), file.display())))
}

/// Writes down what is expected from now on.
fn record(file: &Path, args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    target::check_file("--record", file)?;
    let extent = extent(args, true);
    let judged = judge(&picked(args)?, &extent, interrupt, |_| Ok(Verdicts::default()))?;
    target::write(file, &Expectations::of(&judged, &extent).text())
}

/// Writes which verdicts differ in which world.
fn worlds(args: &VerdictsArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    target::check_folder(&args.out)?;
    let picked = picked(args)?;
    let base = extent(args, args.quick);
    let nothing = |_: &[Judged]| Ok(Verdicts::default());
    let before = judge(&picked, &base, interrupt, nothing)?;
    let mut changed = Vec::new();
    for perturbation in PERTURBATIONS {
        let overrides = perturbation.overrides.iter().map(|given| (*given).to_string()).collect();
        let judged = judge(&picked, &Extent { overrides, ..base.clone() }, interrupt, nothing)?;
        changed.push(Changed { perturbation, judged });
    }
    let mut command = format!("{} --sensitivity", words(args, args.quick));
    args.scenarios.iter().for_each(|part| command += &format!(" --scenario {part}"));
    let path = args.out.join("sensitivity.md");
    target::write(&path, &sensitivity(&command, &before, &changed))?;
    stdout::print(&format!("Table in {}\n", path.display()))
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

fn picked(args: &VerdictsArgs) -> Result<Vec<&'static Builtin>, Failure> {
    let picked = scenarios(&args.scenarios);
    if picked.is_empty() {
        return Err(Failure::Input(anyhow!("no scenario has that in its id (`leeward list` shows what there is)")));
    }
    Ok(picked)
}

/// Judges scenario by scenario; `save` sees those that are done after each.
fn judge(
    picked: &[&Builtin],
    extent: &Extent,
    interrupt: &Interrupt,
    mut save: impl FnMut(&[Judged]) -> Result<Verdicts, Failure>,
) -> Result<Vec<Judged>, Failure> {
    let registry = leeward_lab::registry();
    let mut judged = Vec::new();
    for (index, builtin) in picked.iter().enumerate() {
        let bar = Bar::new(&format!("{} ({} of {})", builtin.id, index + 1, picked.len()), interrupt);
        let one = judge_scenario(builtin, extent, &registry, &|progress| bar.show(progress), interrupt.flag());
        judged.push(one.map_err(failure)?);
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

/// Verdicts that the folder has from before; none if it has none.
fn stored(folder: &Path) -> Result<Verdicts, Failure> {
    let path = folder.join("verdicts.json");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Verdicts::default()) };
    let read = serde_json::from_str(&text).with_context(|| format!("{} is no file of verdicts", path.display()));
    read.map_err(Failure::Input)
}

/// Writes the verdicts of `judged`, and of the scenarios of `kept` that are not among them.
fn save(args: &VerdictsArgs, kept: &Verdicts, judged: &[Judged]) -> Result<Verdicts, Failure> {
    let find = |all: &[Judged], id: &str| all.iter().find(|one| one.id == id).cloned();
    let order = leeward_lab::builtin_scenarios();
    let all = Verdicts {
        command: command(args, kept, judged),
        scenarios: order
            .iter()
            .filter_map(|known| find(judged, known.id).or_else(|| find(&kept.scenarios, known.id)))
            .collect(),
    };
    target::write_json(&args.out, "verdicts.json", &all)?;
    target::write_into(&args.out, "verdicts.md", &markdown(&all))?;
    target::write_into(&args.out, "verdicts.html", &leeward_report::render_verdicts(&all))?;
    Ok(all)
}

/// The command that makes all of it at once.
fn command(args: &VerdictsArgs, kept: &Verdicts, judged: &[Judged]) -> String {
    words(args, judged.iter().chain(&kept.scenarios).any(|scenario| scenario.quick))
}

fn words(args: &VerdictsArgs, quick: bool) -> String {
    let mut words = String::from("leeward verdicts");
    if quick {
        words += " --quick";
    }
    if args.seeds != 10 {
        words += &format!(" --seeds {}", args.seeds);
    }
    args.overrides.iter().for_each(|given| words += &format!(" --set {given}"));
    words
}
