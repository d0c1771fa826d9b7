//! `leeward run … --sweep`: runs a scenario over a grid of values on this machine's threads, and
//! prints a line of JSON per run.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use anyhow::{Context, anyhow};
use leeward_core::registry::Registry;
use leeward_lab::Results;
use leeward_lab::run::Progress;
use leeward_lab::sweep::{Axis, Cell, Grid, SweepError, run_cells};

use super::run::RunArgs;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Bar;
use crate::{scenario, stdout};

/// Maximum of results that wait for an earlier one: a slow run holds back the others.
const PENDING_MAX: usize = 64;

/// Runs the command.
pub(crate) fn sweep(args: &RunArgs) -> Result<(), Failure> {
    if args.plant != "sim" {
        return Err(Failure::Input(anyhow!(
            "--sweep: concurrent real runs would disturb each other; omit --plant real"
        )));
    }
    let axes = args.sweep.iter().map(|text| Axis::parse(text)).collect::<Result<Vec<_>, _>>().map_err(failure)?;
    let loaded = scenario::load(&args.what)?;
    let grid = Grid::new(axes, loaded.run.seeds, args.what.seed).map_err(failure)?;
    grid.check(&scenario::overrides(&args.what)?, |overrides| scenario::load_with(&args.what, overrides))
        .map_err(failure)?;
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let threads =
        args.what.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let threads = threads.min(grid.cells());
    let printed = AtomicUsize::new(0);
    let outcome = {
        let bar = Bar::new(&loaded.id, &interrupt);
        let report = |done| {
            printed.store(done, Ordering::Relaxed);
            bar.show(Progress { done, total: grid.cells(), is_training: false });
        };
        run_all(args, &grid, threads, interrupt.flag(), report)
    };
    outcome
        .and_then(|()| interrupt.finish())
        .map_err(|error| interrupted(error, printed.into_inner(), grid.cells()))?;
    if std::io::stderr().is_terminal() {
        let hint = "on more than this machine: leeward.sweep(…, on=\"ray\") in Python, docs/cluster.md";
        let _ = writeln!(std::io::stderr(), "{} runs on {threads} threads; {hint}", grid.cells());
    }
    Ok(())
}

/// What was printed before an interruption stays with the reader.
fn interrupted(error: Failure, printed: usize, cells: usize) -> Failure {
    match error {
        Failure::Interrupted if printed > 0 => {
            Failure::Partial(anyhow!("interrupted; {printed} of {cells} runs of the grid were printed"))
        }
        error => error,
    }
}

/// Runs all cells and prints their lines in the grid's order.
fn run_all(
    args: &RunArgs,
    grid: &Grid,
    threads: usize,
    cancel: &AtomicBool,
    report: impl Fn(usize),
) -> Result<(), Failure> {
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let registry = leeward_lab::registry();
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(PENDING_MAX);
        for _ in 0..threads {
            let (sender, next, over, registry) = (sender.clone(), &next, &over, &registry);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= grid.cells()
                        || over.load(Ordering::Relaxed)
                        || sender.send((index, run_cell(args, grid, index, registry, cancel))).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = std::collections::BTreeMap::new();
        let mut printed = 0;
        for (index, answer) in receiver {
            waiting.insert(index, answer);
            while let Some(answer) = waiting.remove(&printed) {
                answer.and_then(|lines| stdout::print(&lines)).inspect_err(|_| over.store(true, Ordering::Relaxed))?;
                printed += 1;
                report(printed);
            }
        }
        Ok(())
    })
}

/// Runs a cell and returns its lines.
fn run_cell(
    args: &RunArgs,
    grid: &Grid,
    index: usize,
    registry: &Registry,
    cancel: &AtomicBool,
) -> Result<String, Failure> {
    let mut text = Ok(String::new());
    let load = |overrides: &[String]| scenario::load_with(&args.what, overrides);
    run_cells(grid, index..index + 1, &scenario::overrides(&args.what)?, registry, load, cancel, |_, results| {
        text = lines(&grid.cell(index), &results);
    })
    .map_err(failure)?;
    text
}

fn lines(cell: &Cell<'_>, results: &Results) -> Result<String, Failure> {
    let values: serde_json::Map<_, _> =
        cell.values.iter().map(|(axis, value)| (axis.key.clone(), serde_json::Value::from(*value))).collect();
    let mut text = String::new();
    for point in &results.points {
        let mut line = serde_json::to_value(point).context("a point as JSON").map_err(Failure::Runtime)?;
        line["sweep"] = serde_json::Value::Object(values.clone());
        if !text.is_empty() {
            text.push('\n');
        }
        text += &line.to_string();
    }
    Ok(text)
}

fn failure(error: SweepError) -> Failure {
    match error {
        SweepError::Run(error) => error.into(),
        error => Failure::Input(anyhow!(error.to_string())),
    }
}
