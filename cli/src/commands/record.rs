//! `leeward record`: `leeward serve` with a recording of its controller.

use std::path::PathBuf;

use anyhow::anyhow;

use super::serve::{ServeArgs, serve};
use crate::failure::Failure;

/// Serve like `leeward serve`, and record the calls of the controller and its decisions
///
/// The same as `leeward serve --record FILE`. While recording, the cores decide one at a time: see
/// docs/recording-format.md. If the disk can't keep up, the recording ends, marked as incomplete,
/// and the server continues.
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD)]
pub(crate) struct RecordArgs {
    /// File to write; an existing file is replaced
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

const RECORD: &str = "\
Examples:
  leeward record run.rec --cores 2 --slo 1ms --rtt 50us
  leeward replay run.rec";

/// Runs the command.
pub(crate) fn record(args: RecordArgs) -> Result<(), Failure> {
    let RecordArgs { file, mut serve } = args;
    if let Some(other) = &serve.record {
        let both = anyhow!("--record {}: `leeward record` already records to {}", other.display(), file.display());
        return Err(Failure::Input(both));
    }
    serve.record = Some(file);
    serve.written.push("record".into());
    self::serve(serve)
}
