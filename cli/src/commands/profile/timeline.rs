//! `leeward profile timeline`: shows one request across threads.

use anyhow::{Context, anyhow};
use leeward_profile::analysis::timeline::{self, RequestChoice};
use leeward_profile::render;

use super::args::TimelineArgs;
use super::read::{OpenTrace, failure};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};

/// Runs the command.
pub(super) fn timeline(args: &TimelineArgs) -> Result<(), Failure> {
    let mut reading = OpenTrace::open(&args.source.trace, &args.source.symbols)?;
    let selection = reading.selection(&args.what)?;
    let which = args.id.map_or(RequestChoice::Slowest, RequestChoice::Id);
    let mut watch = reading.progress("looking for the request");
    let found = timeline::timeline(&reading.trace, &mut reading.symbols, &selection, which, &mut watch);
    let timeline = match (found.map_err(failure)?, args.id) {
        (Some(timeline), _) => timeline,
        (None, Some(id)) => return Err(Failure::Input(anyhow!("no request {id} has ended in the trace"))),
        (None, None) => return Err(reading.selection_failure(&args.what, 0)),
    };
    reading.warn_of_symbols();
    if let Some(path) = &args.html {
        let page = render::page(&timeline, &reading.trace.header().command);
        std::fs::write(path, page).with_context(|| path.display().to_string()).map_err(Failure::Runtime)?;
    }
    if args.source.json {
        return stdout::print(&serde_json::to_string(&timeline).map_err(|error| Failure::Runtime(error.into()))?);
    }
    let text: Vec<String> = render::timeline(&timeline).lines().map(sanitize).collect();
    stdout::print(&text.join("\n"))
}
