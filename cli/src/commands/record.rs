//! `leeward record`: `leeward serve` with a recording of its controller.

use std::path::PathBuf;

use anyhow::anyhow;

use super::serve::{ServeArgs, serve};
use crate::failure::Failure;

/// Serve like `leeward serve`, and record what the controller is asked and decides
///
/// The same as `leeward serve --record FILE`. While recording, all cores decide one after another:
/// see docs/recording-format.md. When the disk can't keep up, the recording ends, marked as
/// incomplete, and the server goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD)]
pub(crate) struct RecordArgs {
    /// File to write; what is in it is replaced
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
        let both = anyhow!("--record {}: this records to {} already", other.display(), file.display());
        return Err(Failure::Input(both));
    }
    serve.record = Some(file);
    serve.written.push("record".into());
    self::serve(serve)
}
