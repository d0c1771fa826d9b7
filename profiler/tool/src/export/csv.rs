//! One line per event, in the order of time.

use std::cell::Cell;
use std::io::Write;

use super::{Attempt, ExportError, watching};
use crate::format::event::OffCpu;
use crate::format::{Event, What};
use crate::symbols::Symbols;
use crate::trace::{Trace, Watch};

/// Columns: times in nanoseconds, `start` and `end` since the beginning of the trace.
const HEAD: &str = "thread,kind,start_ns,end_ns,wait_ns,name,place,object,id,cpu";

#[derive(Default)]
struct Line {
    kind: &'static str,
    start: u64,
    wait: u64,
    name: String,
    place: String,
    object: u64,
    id: Option<u64>,
    cpu: Option<u32>,
}

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let mut attempt = Attempt::new();
    let failed = Cell::new(false);
    attempt.run(|| writeln!(out, "{HEAD}"));
    let zero = trace.counts().first;
    let read = trace.in_order(
        &mut watching(watch, &failed),
        |_| true,
        |event| {
            let line = line(event, symbols);
            attempt.run(|| {
                let object = if line.object == 0 { String::new() } else { format!("{:#x}", line.object) };
                let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
                writeln!(
                    out,
                    "{},{},{},{},{},{},{},{object},{},{}",
                    quoted(&trace.thread_name(event.thread)),
                    line.kind,
                    line.start.saturating_sub(zero),
                    event.time.saturating_sub(zero),
                    line.wait,
                    quoted(&line.name),
                    quoted(&line.place),
                    number(line.id),
                    number(line.cpu.map(u64::from)),
                )
            });
            failed.set(attempt.failed());
        },
    );
    attempt.finish(read)
}

fn line(event: &Event, symbols: &mut Symbols) -> Line {
    let now = event.time;
    let plain = |kind| Line { kind, start: now, ..Line::default() };
    let mut locked = |kind, object: crate::format::ObjectKind, lock, site, wait, reach| Line {
        kind,
        start: now.saturating_sub(reach),
        wait,
        name: object.words().into(),
        place: if site == 0 { String::new() } else { symbols.site(site, now).words() },
        object: lock,
        ..Line::default()
    };
    match event.what {
        What::Held { object, lock, site, wait, hold } => locked("held", object, lock, site, wait, hold),
        What::Waited { object, lock, site, wait } => locked("waited", object, lock, site, wait, wait),
        What::Acquired { object, lock, site, wait } => locked("acquired", object, lock, site, wait, wait),
        What::Released { object, lock, site } => locked("released", object, lock, site, 0, 0),
        What::Call { function, caller, duration, .. } => Line {
            name: symbols.place(function, now).function(),
            place: if caller == 0 { String::new() } else { symbols.caller(caller, now).words() },
            start: now.saturating_sub(duration),
            ..plain("call")
        },
        What::RequestStart { id, queue } => Line { id: Some(id), object: queue.unwrap_or(0), ..plain("request start") },
        What::RequestBlock { id, queue } => Line { id: Some(id), object: queue.unwrap_or(0), ..plain("request block") },
        What::RequestEnd { id } => Line { id: Some(id), ..plain("request end") },
        What::RequestEndAll => plain("requests end"),
        What::SwitchedOut { cpu, why, .. } => {
            let kind = if why == OffCpu::Runnable { "switched out, runnable" } else { "switched out, blocked" };
            Line { cpu: Some(cpu), ..plain(kind) }
        }
        What::SwitchedIn { cpu } => Line { cpu: Some(cpu), ..plain("switched in") },
        What::Woken { by } => Line { id: Some(u64::from(by)), ..plain("woken") },
        What::Migrated { from, to } => Line { id: Some(u64::from(from)), cpu: Some(to), ..plain("migrated") },
        What::Lost { count, .. } => Line { id: Some(count), ..plain("lost") },
    }
}

/// A field as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}
