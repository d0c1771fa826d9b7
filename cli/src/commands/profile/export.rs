//! `leeward profile export`: a trace for other tools.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::slowest::slowest;
use leeward_profile::export::{self, ExportError, Format, Options};
use leeward_profile::trace::TraceError;

use super::args::ExportArgs;
use super::read::{OpenTrace, failure};
use crate::failure::Failure;
use crate::stdout;

/// Runs the command.
pub(super) fn export(args: &ExportArgs) -> Result<(), Failure> {
    let format = match args.format.as_str() {
        "perfetto" => Format::Perfetto,
        "chrome" => Format::Chrome,
        "csv" => Format::Csv,
        "folded" => Format::Folded,
        _ => Format::Parquet,
    };
    let mut reading = OpenTrace::open(&args.trace, &args.symbols)?;
    let selection = match format {
        Format::Folded => reading.selection(&args.what)?,
        // Without requests, the rest of the trace can still be exported.
        _ if args.what.request_fn.is_none() => Selection::Marked,
        _ => reading.selection(&args.what)?,
    };
    let mut options = Options { selection, slower_than: 0 };
    if format == Format::Folded {
        let mut watch = reading.progress("following requests");
        let found =
            slowest(&reading.trace, &mut reading.symbols, &options.selection, 1, &mut watch).map_err(failure)?;
        if found.latencies.count() == 0 {
            return Err(reading.selection_failure(&args.what, found.unfinished));
        }
        options.slower_than = found.latencies.top_threshold(args.slowest.unwrap_or(100.0) / 100.0);
    }
    let mut watch = reading.progress("exporting");
    let mut write = |out: &mut dyn Write| {
        let written = export::export(&reading.trace, &mut reading.symbols, format, &options, out, &mut watch);
        written.and_then(|()| Ok(out.flush()?))
    };
    if args.out == Path::new("-") {
        let mut out = BufWriter::new(std::io::stdout().lock());
        return match write(&mut out) {
            Err(ExportError::Write(error)) => stdout::ignore_broken_pipe(error),
            other => other.map_err(|error| export_failure(error, &args.out)),
        };
    }
    let file = File::create(&args.out).with_context(|| args.out.display().to_string()).map_err(Failure::Runtime)?;
    write(&mut BufWriter::new(file)).map_err(|error| export_failure(error, &args.out))?;
    reading.warn_of_symbols();
    stdout::print(&format!("wrote {}", args.out.display()))
}

fn export_failure(error: ExportError, path: &Path) -> Failure {
    match error {
        ExportError::Trace(TraceError::Interrupted) => Failure::Interrupted,
        ExportError::Trace(error) => failure(error),
        other => Failure::Runtime(anyhow!(other).context(path.display().to_string())),
    }
}
