//! `leeward twin`: shows how well the simulator predicted the runs of a machine, cell by cell.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_lab::{prediction, store};

use super::output_files;
use crate::failure::Failure;
use crate::stdout;

/// Write how well the simulator predicted an earlier real run
///
/// A run with `--plant real` measures the machine first, and the simulator predicts each run from
/// the measurements. This command lists the errors for each demand, number of clients, service and
/// controller, and compares them with the limits of docs/twin.md.
#[derive(Debug, clap::Args)]
#[command(after_help = TWIN)]
pub(crate) struct TwinArgs {
    /// Folder of an earlier `leeward run --plant real`
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// File to write, such as docs/results/twin.md; by default the page is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const TWIN: &str = "\
Examples:
  leeward run real-grid --plant real --out /tmp/grid && leeward twin /tmp/grid
  leeward twin /tmp/grid --out docs/results/twin.md";

/// Runs the command.
pub(crate) fn twin(args: &TwinArgs) -> Result<(), Failure> {
    let results = store::read(&args.folder)?;
    let id = if results.scenario.is_empty() { "SCENARIO" } else { &results.scenario };
    let quick = if results.quick { " --quick" } else { "" };
    let command = format!("leeward run {id} --plant real{quick} --out DIR && leeward twin DIR");
    let page = prediction::markdown(&results, &command).ok_or_else(|| {
        Failure::Input(anyhow!(
            "{}: has no predictions of runs whose load kept its schedule; accepted: the folder of a `leeward run --plant real` with a synthetic service",
            args.folder.display()
        ))
    })?;
    match &args.out {
        None => stdout::print(page.trim_end()),
        Some(file) => {
            output_files::write(file, &page)?;
            stdout::print(&format!("Page in {}", file.display()))
        }
    }
}
