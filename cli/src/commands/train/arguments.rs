//! Arguments of a training: tier, setups, loads and duration.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_core::units::{Nanos, Rate, parse_duration, parse_scaled};
use leeward_lab::run::RunError;
use leeward_lab::scenario::curves::CurvesFile;
use leeward_lab::training::advice::{Advice, training_range};
use leeward_lab::training::{
    self, Arrivals, Bench, RetestResult, SETUPS, ServiceTier, ServiceTierSpec, SimulatedTier, TrainingOutcome,
    TrainingPlan, TrainingProgress,
};
use leeward_lab::{Scenario, builtin_scenarios};
use leeward_plant::machine_identity;
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{CURVES_MAX, Curves, TailPercentile};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Spinner;
use crate::scenario::{self, ScenarioArgs};

/// Arguments that say what to measure.
#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    what: ScenarioArgs,
    /// Tier of the scenario, if it has several
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Where to measure: sim, or real (this machine: a service of `leeward serve` with its leaves,
    /// or a scenario's tier, whose leaves wait instead of computing)
    #[arg(long, default_value = "sim", value_name = "PLANT", value_parser = ["sim", "real"])]
    plant: String,
    /// CPUs of a real tier
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    cpus: u32,
    /// Data of a service, as for `leeward serve --data`; with --plant real
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    /// Number of leaves of a service, each with its part of the data; by default 4; with --plant
    /// real
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=64))]
    leaves: Option<u32>,
    /// Setups to measure, such as SIP1,SDB1-16; by default some of every model
    #[arg(long, value_delimiter = ',', value_name = "SETUP")]
    setups: Vec<ThreadingSetup>,
    /// Lowest and highest load per second, such as 50..8k; by default from a hundredth of the best
    /// setup's highest load to all of it
    #[arg(long, value_name = "LOW..HIGH", value_parser = parse_loads)]
    load: Option<(f64, f64)>,
    /// Percentile of latency that decides: p99 or p99.9
    #[arg(long, default_value = "p99", value_name = "PERCENTILE", value_parser = parse_tail)]
    objective: TailArg,
    /// Spacing of requests: poisson or constant
    #[arg(long, default_value = "poisson", value_name = "PROCESS", value_parser = ["poisson", "constant"])]
    arrivals: String,
    /// Longest time to measure
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = parse_budget)]
    budget: TimeBudget,
}

/// Default number of leaves of a service.
const LEAVES: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct TailArg(TailPercentile);

#[derive(Clone, Copy, Debug)]
struct TimeBudget(Duration);

fn parse_tail(text: &str) -> Result<TailArg, String> {
    match text {
        "p99" => Ok(TailArg(TailPercentile::P99)),
        "p99.9" | "p999" => Ok(TailArg(TailPercentile::P999)),
        _ => Err("accepted: p99, p99.9".into()),
    }
}

fn parse_loads(text: &str) -> Result<(f64, f64), String> {
    let accepted = || "accepted: two ascending loads per second such as 50..8k".to_string();
    let (low, high) = text.split_once("..").ok_or_else(accepted)?;
    let pair = (parse_scaled(low).map_err(|_| accepted())?, parse_scaled(high).map_err(|_| accepted())?);
    if pair.0 >= 0.01 && pair.1 > pair.0 && pair.1 <= 1e8 { Ok(pair) } else { Err(accepted()) }
}

fn parse_budget(text: &str) -> Result<TimeBudget, String> {
    let accepted = || "accepted: a time such as 30s or 10m".to_string();
    let span = match text.strip_suffix('m').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(minutes) => Nanos::from_secs(minutes.parse::<u32>().map_err(|_| accepted())?.into()) * 60,
        None => parse_duration(text).map_err(|_| accepted())?,
    };
    if span == Nanos::ZERO { Err(accepted()) } else { Ok(TimeBudget(Duration::from_nanos(span.0))) }
}

/// A training before its start.
pub(super) struct Training {
    bench: Box<dyn Bench>,
    name: String,
    data: String,
    machine: String,
    plan: TrainingPlan,
    /// Requested loads; the training covers higher loads, too.
    requested: Option<(Rate, Rate)>,
    budget: Duration,
    command: String,
}

impl Training {
    pub(super) fn from_args(args: &BenchArgs, slo: Nanos) -> Result<Training, Failure> {
        let arrivals = if args.arrivals == "poisson" { Arrivals::Poisson } else { Arrivals::Constant };
        let setups = if args.setups.is_empty() { default_setups()? } else { args.setups.clone() };
        check_setups(&setups)?;
        let mut plan = TrainingPlan { tail: args.objective.0, ..TrainingPlan::new(setups) };
        let range = args.load.map(|(low, high)| (Rate(low), Rate(high)));
        plan.loads = range.map(training_range);
        let mut made = format!(
            "{} --plant {} --arrivals {} --seed {}",
            args.what.scenario, args.plant, args.arrivals, args.what.seed
        );
        let is_real = args.plant == "real";
        if is_real && ServiceTier::is_known(&args.what.scenario) {
            check_tier(args, &args.what.scenario)?;
            let spec = ServiceTierSpec {
                data: args.data.clone(),
                leaves: args.leaves.unwrap_or(LEAVES),
                cpus: args.cpus,
                arrivals,
                slo,
                seed: args.what.seed,
            };
            made += &format!(" --leaves {} --cpus {}", spec.leaves, spec.cpus);
            let steps = Spinner::new(&format!("starting {}", args.what.scenario));
            let tier = ServiceTier::start(&args.what.scenario, &spec, &|step| steps.show(step))?;
            drop(steps);
            let (name, data) = (tier.name().to_string(), tier.data().to_string());
            let machine = machine_identity(args.cpus as usize);
            let (bench, budget) = (Box::new(tier), args.budget.0);
            return Ok(Training { bench, name, data, machine, plan, requested: range, budget, command: made });
        }
        if args.data.is_some() || args.leaves.is_some() {
            let names: Vec<&str> =
                Catalogue::builtin().names().into_iter().filter(|name| ServiceTier::is_known(name)).collect();
            let message = "--data and --leaves go with --plant real and a service";
            return Err(Failure::Input(anyhow!("{message}; accepted: {}", names.join(", "))));
        }
        let tier = find_tier(args, arrivals)?;
        let name = tier.name().to_string();
        let (bench, machine): (Box<dyn Bench>, String) = if is_real {
            (Box::new(tier.to_measured(args.cpus)?), machine_identity(args.cpus as usize))
        } else {
            let machine = tier.machine();
            (Box::new(tier), machine)
        };
        Ok(Training {
            bench,
            name,
            data: String::new(),
            machine,
            plan,
            requested: range,
            budget: args.budget.0,
            command: made,
        })
    }

    /// Lowest and highest requested load.
    pub(super) fn requested_loads(&self) -> Option<(Rate, Rate)> {
        self.requested
    }

    /// Setups, loads and percentile of the training.
    pub(super) fn plan(&self) -> &TrainingPlan {
        &self.plan
    }

    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<TrainingOutcome, Failure> {
        let begun = Instant::now();
        let steps = Spinner::with_interrupt(&format!("training {}", self.name), interrupt);
        let show = |progress: TrainingProgress| {
            let TrainingProgress { setup, load, measurements: measured, loads: (done, all) } = progress;
            let step = describe_step(done, all);
            steps.show(&format!("{step}, {:.0}/s: {setup}, {measured} measurements", load.0));
        };
        let is_over = || begun.elapsed() >= self.budget;
        Ok(training::train(self.bench.as_ref(), &self.plan, &show, &is_over, interrupt.flag())?)
    }

    /// Measures the advised setups again.
    pub(super) fn check(
        &self,
        advice: &Advice,
        curves: &Curves,
        interrupt: &Interrupt,
    ) -> Result<Vec<RetestResult>, Failure> {
        let steps = Spinner::with_interrupt(&format!("checking {}", self.name), interrupt);
        let report = |load: Rate| steps.show(&format!("{:.0}/s", load.0));
        Ok(training::retest(self.bench.as_ref(), advice, curves, &self.plan, &report, interrupt.flag())?)
    }

    pub(super) fn file(&self, trained: &TrainingOutcome, command: &str) -> CurvesFile {
        CurvesFile {
            service: self.name.clone(),
            data: self.data.clone(),
            command: format!("leeward {command} {}", self.command),
            machine: self.machine.clone(),
            curves: trained.curves.clone(),
        }
    }
}

/// What the training does after `done` of all its loads.
fn describe_step(done: usize, all: usize) -> String {
    match all {
        0 => "looking for the highest load".into(),
        _ if done < all => format!("load {} of {all}", done + 1),
        _ => "narrowing the highest loads".into(),
    }
}

/// Rejects what the curves would reject after the training.
fn check_setups(setups: &[ThreadingSetup]) -> Result<(), Failure> {
    let is_repeated = |(index, setup): &(usize, &ThreadingSetup)| setups[..*index].contains(setup);
    if let Some((_, setup)) = setups.iter().enumerate().find(is_repeated) {
        return Err(Failure::Input(anyhow!("--setups: {setup} twice; accepted: each setup once")));
    }
    if setups.len() > CURVES_MAX {
        let count = setups.len();
        return Err(Failure::Input(anyhow!("--setups: {count} setups; accepted: up to {CURVES_MAX}")));
    }
    Ok(())
}

/// Rejects `--tier` beside the name of another tier or service.
fn check_tier(args: &BenchArgs, name: &str) -> Result<(), Failure> {
    match &args.tier {
        Some(tier) if canonical(tier) != name => {
            Err(RunError::Tier { name: tier.chars().take(60).collect(), accepted: name.into() }.into())
        }
        _ => Ok(()),
    }
}

fn default_setups() -> Result<Vec<ThreadingSetup>, Failure> {
    let read = |text: &&str| text.parse().map_err(|error| Failure::Input(anyhow!("{error}")));
    SETUPS.iter().map(read).collect()
}

/// Our name of a service: papers have other names for some.
fn canonical(name: &str) -> &str {
    Catalogue::builtin().find(name).map_or(name, |case| case.name())
}

/// Finds the tier of the named scenario, or the tier of this name in a built-in scenario.
fn find_tier(args: &BenchArgs, arrivals: Arrivals) -> Result<SimulatedTier, Failure> {
    let (name, seed) = (&args.what.scenario, args.what.seed);
    let name = canonical(name);
    let is_scenario = builtin_scenarios().iter().any(|known| known.id == name) || name.contains(['/', '\\', '.']);
    if !is_scenario {
        let is_named = format!("name = \"{name}\"");
        for known in builtin_scenarios().iter().filter(|known| known.text.contains(&is_named)) {
            let scenario = Scenario::builtin(known.id, &args.what.overrides, args.what.quick)?;
            if let Ok(tier) = SimulatedTier::from_scenario(&scenario, Some(name), arrivals, seed) {
                check_tier(args, name)?;
                return Ok(tier);
            }
        }
    }
    let scenario = scenario::load(&args.what)?;
    Ok(SimulatedTier::from_scenario(&scenario, args.tier.as_deref(), arrivals, seed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_last_load_the_highest_loads_are_narrowed() {
        let steps = [(0, 0), (0, 16), (15, 16), (16, 16)].map(|(done, all)| describe_step(done, all));
        assert_eq!(
            steps,
            ["looking for the highest load", "load 1 of 16", "load 16 of 16", "narrowing the highest loads"]
        );
    }
}
