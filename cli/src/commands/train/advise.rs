//! `leeward advise`: recommends the threading of a service, from a training.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_core::units::{Nanos, Rate, parse_duration};
use leeward_lab::training::RetestResult;
use leeward_lab::training::advice::{self, Advice, AdviceQuery};
use serde_json::json;

use super::super::output_files;
use super::arguments::{BenchArgs, Training};
use super::{summary, text};
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Recommend threading setups for a service and its loads
///
/// Trains as `leeward train` does, and recommends a setup for each load and one for all loads, with
/// the confidence of each. Writes the curves for the policy `leeward`.
#[derive(Debug, clap::Args)]
#[command(after_help = ADVISE)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    bench: BenchArgs,
    /// Objective of the tail latency
    #[arg(long, value_name = "TIME", value_parser = parse_slo)]
    slo: Slo,
    /// Write the curves to this file, such as curves.toml
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure the recommended setups and the policy `leeward` again, with other requests, beside
    /// every setup that may be better
    #[arg(long)]
    check: bool,
    /// Print the recommendations as one JSON object
    #[arg(long)]
    json: bool,
}

const ADVISE: &str = "\
Examples:
  leeward advise hdsearch --slo 1ms --load 50..8k
  leeward advise hdsearch --slo 1ms --check
  leeward advise router --plant real --slo 5ms --out curves.toml
  leeward advise mt-sync --slo 5ms --load 20..11k --out curves.toml";

#[derive(Clone, Copy, Debug)]
struct Slo(Nanos);

fn parse_slo(text: &str) -> Result<Slo, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    if span == Nanos::ZERO { Err("accepted: a time above 0 such as 1ms".into()) } else { Ok(Slo(span)) }
}

/// Runs the command.
pub(crate) fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    if let Some(out) = &args.out {
        output_files::check_file("--out", out)?;
    }
    let training = Training::from_args(&args.bench, args.slo.0)?;
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let trained = training.run(&interrupt)?;
    if !args.check {
        interrupt.finish()?;
    }
    let file = training.file(&trained, "advise");
    if let Some(out) = &args.out {
        output_files::write(out, &file.to_toml())?;
    }
    let knots = file.curves.all().iter().flat_map(|curve| &curve.points).map(|knot| knot.load);
    let (measured_low, measured_high) =
        knots.fold((f64::MAX, 0.0), |(low, high): (f64, f64), load| (low.min(load), high.max(load)));
    if measured_high <= 0.0 {
        return Err(Failure::Runtime(anyhow!("nothing was measured")));
    }
    let all = (Rate(measured_low), advice::max_advised_load(Rate(measured_high)));
    let (lowest, mut highest) = training.requested_loads().unwrap_or(all);
    if trained.timed_out {
        highest = Rate(highest.0.min(all.1.0));
        if highest.0 < lowest.0 {
            let message = "the budget ended before enough loads were measured; increase --budget";
            return Err(Failure::Runtime(anyhow!(message)));
        }
    }
    let question = AdviceQuery { slo: args.slo.0, tail: training.plan().tail, min_load: lowest, max_load: highest };
    let advice = advice::advise(&file.curves, &question);
    let fresh = match args.check {
        true => {
            let fresh = training.check(&advice, &file.curves, &interrupt)?;
            interrupt.finish()?;
            fresh
        }
        false => Vec::new(),
    };
    if args.json {
        return stdout::print(&as_json(&advice, &question, &fresh, trained.timed_out).to_string());
    }
    let cut = if trained.timed_out { text::cut_short(highest) } else { String::new() };
    let end = args.out.as_ref().map_or(String::new(), |out| summary(&trained, out));
    let checked = if args.check { text::retest(&fresh, &question) } else { String::new() };
    stdout::print(&format!("{cut}{}{checked}{end}", text::advice(&advice, &question, args.out.as_deref())))
}

fn as_json(advice: &Advice, question: &AdviceQuery, fresh: &[RetestResult], cut_short: bool) -> serde_json::Value {
    let alone = |alone: &Option<advice::SingleSetup>| {
        alone.map(|alone| json!({ "setup": alone.setup.to_string(), "factor": alone.factor, "cpu": alone.cpu }))
    };
    json!({
        "cut_short": cut_short,
        "slo_us": question.slo.as_micros_f64(),
        "steps": advice.steps.iter().map(|(from, setup)| json!({ "from": from.0, "setup": setup.to_string() })).collect::<Vec<_>>(),
        "alone": alone(&advice.single),
        "frugal": alone(&advice.cheapest),
        "kept_to": advice.max_slo_load.map(|load| load.0),
        "fresh": fresh.iter().map(|one| json!({
            "load": one.load.0,
            "requests": one.requests,
            "advised": one.advised.0.to_string(),
            "factor": one.factor(),
            "best": one.best.0.to_string(),
            "best_tail_us": one.best.1.as_micros_f64(),
            "auto_factor": one.policy_factor(),
        })).collect::<Vec<_>>(),
        "rows": advice.rows.iter().map(|row| json!({
            "load": row.load.0,
            "best": row.best.to_string(),
            "tail_us": row.tail.as_micros_f64(),
            "cpu": row.cpu,
            "second": row.second.map(|(setup, _)| setup.to_string()),
            "second_tail_us": row.second.map(|(_, tail)| tail.as_micros_f64()),
            "confidence": row.confidence.as_str(),
        })).collect::<Vec<_>>(),
    })
}
