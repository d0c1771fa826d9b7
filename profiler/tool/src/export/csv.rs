//! Export as CSV: a line per event, in the order of time.

use std::cell::Cell;
use std::io::Write;

use super::rows::EventRow;
use super::{Attempt, ExportError, watching};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace};

/// Columns; `start_ns` and `end_ns` count from the start of the trace.
const HEAD: &str = "thread,kind,start_ns,end_ns,wait_ns,name,place,object,id,cpu";

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    let mut attempt = Attempt::new();
    let failed = Cell::new(false);
    attempt.run(|| writeln!(out, "{HEAD}"));
    let zero = trace.counts().first;
    let read = trace.in_order(
        &mut watching(watch, &failed),
        |_| true,
        |event| {
            let line = EventRow::from_event(event, symbols);
            attempt.run(|| {
                let object = if line.object == 0 { String::new() } else { format!("{:#x}", line.object) };
                let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
                writeln!(
                    out,
                    "{},{},{},{},{},{},{},{object},{},{}",
                    quoted(&trace.thread_name(event.thread)),
                    quoted(line.kind),
                    line.start.saturating_sub(zero),
                    event.time.saturating_sub(zero),
                    line.wait,
                    quoted(&line.name),
                    quoted(&line.location),
                    number(line.id),
                    number(line.cpu.map(u64::from)),
                )
            });
            failed.set(attempt.failed());
        },
    );
    attempt.finish(read)
}

/// Quotes a field after RFC 4180.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}
