//! `leeward profile stop`: ends an attached recording, and prints its summary.

use std::path::Path;

use super::args::StopArgs;
use super::control::send_command;
use super::record::summarize;
use crate::failure::Failure;
use crate::stdout;

/// Runs the command.
pub(super) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let answer = send_command(args.pid, "stop")?;
    stdout::print(&answer)?;
    match answer.strip_prefix("stopped ").map(Path::new).filter(|folder| folder.is_dir()) {
        Some(folder) => summarize(folder).map(|_| ()),
        None => Ok(()),
    }
}
