//! The program behind `make proxy`: `leeward proxy` before services in five languages, beside
//! HAProxy, nginx, Envoy and no proxy, under an open-loop load.
//!
//! The service has one CPU; proxy and load share the other. In the order in which they build on
//! each other:
//! - `sample`: the rows. `plan`, `answer`, `connection`, `load`, `load_http2`: the generator.
//!   `process`: children.
//! - `services`: builds and starts what is protected; `serve` is the one on axum. `contender`: the
//!   proxies and their configurations.
//! - `line`, `store`, `tuned`: outcomes and files. `quiet`: whether the machine did anything else.
//!   `measure`: one measurement. `search`: the rivals' best numbers.
//! - `overload`, `transients`, `classes`, `tokens`, `speed`, `memory`, `reload`: the parts.
//!   `certificates`: files and clients of TLS for the last one.

mod answer;
mod certificates;
mod classes;
mod connection;
mod contender;
mod line;
mod load;
mod load_http2;
mod measure;
mod memory;
mod overload;
mod plan;
mod process;
mod quiet;
mod reload;
mod sample;
mod search;
mod serve;
mod services;
mod speed;
mod store;
mod tokens;
mod transients;
mod tuned;

use anyhow::Result;
use clap::{Parser, Subcommand};
use contender::Contender;
use line::Line;
use measure::{Bench, Spans};
use sample::{Protocol, Row, Service};
use serde_json::Value;
use services::Services;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::Store;
use tuned::Tuned;

/// Seed of the sample and of all loads.
pub(crate) const SEED: u64 = 1;
/// Exit code of a full run without one of the rivals or services.
const INCOMPLETE: u8 = 2;

/// Measures `leeward proxy` beside its rivals.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// A short round of the most telling rows.
    #[arg(long)]
    quick: bool,
    /// Rounds of which medians are taken; 5, or 1 if it is to be quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of a measurement; 6, or 3 if it is to be quick.
    #[arg(long)]
    seconds: Option<u64>,
    /// Minutes of random steps; 10, or 0.3 if it is to be quick.
    #[arg(long)]
    minutes: Option<f64>,
    /// Only parts whose names contain this (`--list` has the names). Any row by its whole name,
    /// such as `java/pool/1.2x`, in the sample or not.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Parts that were measured with the same settings are not measured again.
    #[arg(long = "continue")]
    continues: bool,
    /// Only searches the rivals' best static numbers again, and writes them to proxy-tuned.json.
    /// Rows without numbers are searched in any case.
    #[arg(long)]
    search: bool,
    /// Attempts of a measurement that other programs disturb.
    #[arg(long, default_value_t = 3)]
    attempts: usize,
    /// Prints the names of the parts, and ends.
    #[arg(long)]
    list: bool,
    /// Folder for results and for what is built.
    #[arg(long, default_value = "target/proxy")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the service on axum. Used by the measurement itself.
    Serve(serve::Args),
}

/// A part of the measurement.
#[derive(Clone, Copy)]
enum Part {
    Row(Row),
    Other(&'static str),
}

/// Parts that are no rows, by name.
const OTHERS: [&str; 13] = [
    "cold",
    "steps",
    "classes",
    "classes/http2",
    "tenants",
    "tenants/http2",
    "tokens",
    "cost",
    "latency",
    "refusal",
    "idle",
    "bodies",
    "reload",
];

impl Part {
    fn name(&self) -> String {
        match self {
            Part::Row(row) => row.name(),
            Part::Other(name) => (*name).into(),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Some(Command::Serve(serve)) => serve::serve(serve).map(|()| true),
        None => measure(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INCOMPLETE),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parts to measure, in their order.
fn parts(args: &Args) -> Vec<Part> {
    let rows = if args.quick { sample::quick(SEED) } else { sample::sample(SEED) };
    let mut parts: Vec<Part> =
        rows.into_iter().chain(sample::others()).map(Part::Row).chain(OTHERS.map(Part::Other)).collect();
    if args.search {
        parts.retain(|part| matches!(part, Part::Row(_)));
    }
    if !args.only.is_empty() {
        parts.retain(|part| args.only.iter().any(|only| part.name().contains(only.as_str())));
        let named = args.only.iter().filter_map(|only| Row::named(only));
        let more: Vec<Part> =
            named.filter(|row| !parts.iter().any(|part| part.name() == row.name())).map(Part::Row).collect();
        parts.extend(more);
    }
    parts
}

/// Measures and prints; returns whether all that was asked for was installed.
fn measure(args: &Args) -> Result<bool> {
    let parts = parts(args);
    if args.list {
        parts.iter().for_each(|part| println!("{}", part.name()));
        return Ok(true);
    }
    anyhow::ensure!(!parts.is_empty(), "no part has such a name (--list)");
    process::pin(process::PROXY_CPU)?;
    process::more_files()?;
    let spans = Spans {
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 5 }).max(1),
        warmup: Duration::from_secs(2),
        span: Duration::from_secs(args.seconds.unwrap_or(if args.quick { 3 } else { 6 }).max(1)),
    };
    let minutes = args.minutes.unwrap_or(if args.quick { 0.3 } else { 10.0 }).clamp(0.05, 60.0);
    let settings = format!("{} rounds of {} s, {minutes} minutes", spans.rounds, spans.span.as_secs());
    let store = Store::new(args.out.join("results"), settings)?;
    let folder = fresh_folder(&args.out)?;
    let mut bench = Bench {
        services: Services::new(&args.out),
        folder,
        spans,
        seed: SEED,
        busiest: 0.0,
        disturbed: 0,
        attempts: args.attempts.max(1),
    };
    let (mut missing, mut failed) = (Vec::<String>::new(), Vec::new());
    for of in Contender::ALL {
        if of.program().is_none() {
            println!("{} is not installed: its numbers are missing", of.name());
            missing.push(of.name().into());
        }
    }
    let mut tuned = Tuned::load()?;
    let (mut lines, start) = (Vec::new(), Instant::now());
    for (index, part) in parts.iter().enumerate() {
        let name = part.name();
        let measured = match store.load(&name).filter(|_| args.continues) {
            Some(lines) => lines,
            None => {
                let (count, passed) = (parts.len(), start.elapsed().as_secs_f64() / 60.0);
                eprintln!("part {} of {count}: {name} ({passed:.0} min so far)", index + 1);
                match run(part, &mut bench, &mut tuned, args, minutes) {
                    // The other parts take hours: they go on.
                    Err(error) => {
                        println!("{name}: failed: {error:#}");
                        failed.push(name);
                        continue;
                    }
                    Ok(Ok((lines, raw))) => {
                        if !args.search {
                            store.save(&name, &lines, &raw)?;
                        }
                        lines
                    }
                    Ok(Err(services::Missing(what))) => {
                        println!("{name}: {what}");
                        missing.push(what);
                        continue;
                    }
                }
            }
        };
        measured.iter().for_each(Line::print);
        lines.extend(measured);
    }
    if let Some(line) = overload::summary(&lines) {
        line.print();
        lines.push(line);
    }
    std::fs::remove_dir_all(&bench.folder)?;
    let count = |met| lines.iter().filter(|line| line.met == Some(met)).count();
    println!(
        "{} met, {} MISSED, {} not measured",
        count(true),
        count(false),
        lines.iter().filter(|line| line.met.is_none()).count()
    );
    println!("the generator took at most {:.0} % of its CPU", bench.busiest * 100.0);
    if bench.disturbed > 0 {
        println!(
            "DISTURBED: in {} measurements other programs took more than {:.0} % of a CPU",
            bench.disturbed,
            quiet::MOST * 100.0
        );
    }
    if !missing.is_empty() {
        println!("not installed: {}", missing.join(", "));
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(args.quick || missing.is_empty())
}

/// Measures one part; `Err` inside where its service is not installed.
fn run(
    part: &Part,
    bench: &mut Bench,
    tuned: &mut Tuned,
    args: &Args,
    minutes: f64,
) -> Result<Result<(Vec<Line>, Value), services::Missing>> {
    let name = match part {
        Part::Row(row) => return overload::measure(bench, row, tuned, args.search),
        Part::Other(name) => *name,
    };
    if let Err(missing) = bench.services.build(Service::Go)? {
        return Ok(Err(missing));
    }
    Ok(Ok(match name {
        "cold" => transients::cold(bench, tuned)?,
        "steps" => transients::steps(bench, tuned, minutes)?,
        "classes" => classes::classes(bench, tuned, Protocol::Http1)?,
        "classes/http2" => classes::classes(bench, tuned, Protocol::Http2)?,
        "tenants" => classes::tenants(bench, tuned, Protocol::Http1)?,
        "tenants/http2" => classes::tenants(bench, tuned, Protocol::Http2)?,
        "tokens" => tokens::tokens(bench)?,
        "cost" => speed::cost(bench)?,
        "latency" => speed::latency(bench)?,
        "refusal" => speed::refusal(bench, tuned)?,
        "idle" => memory::idle(bench)?,
        "reload" => reload::reload(bench, if args.quick { 100_000 } else { 1_000_000 })?,
        _ => memory::bodies(bench, if args.quick { 256 } else { 1_024 })?,
    }))
}

/// Makes a folder for this run alone, and removes those of runs that were ended in the middle.
fn fresh_folder(out: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(out)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_left = name.strip_prefix("run-").is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if is_left {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    let folder = out.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
