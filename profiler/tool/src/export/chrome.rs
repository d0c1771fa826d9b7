//! Chrome's trace events in JSON, for `chrome://tracing` and other readers of the format.

use std::cell::Cell;
use std::io::Write;

use serde_json::{Value, json};

use super::{Attempt, ExportError, ExportItem, Options, named, origin, walk, watching};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace};

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    options: &Options,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    let (pid, zero) = (trace.header().pid, trace.counts().first);
    let tid = |thread: u32| trace.thread(thread).map_or(thread, |known| known.tid);
    let micros = |nanos: u64| nanos.saturating_sub(zero) as f64 / 1000.0;
    let span = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1000.0;
    let mut attempt = Attempt::new();
    let failed = Cell::new(false);
    attempt.run(|| writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":["));
    let process = json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": trace.header().command}});
    attempt.run(|| write!(out, "{process}"));
    let mut put = |value: Value| attempt.run(|| write!(out, ",\n{value}"));
    for thread in trace.threads() {
        put(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread.tid, "args": {"name": thread.name}}));
    }
    let read = walk(trace, symbols, &options.selection, &mut watching(watch, &failed), |item, symbols| match item {
        ExportItem::Interval(thread, interval) => {
            let (name, category) = named(symbols, interval);
            let from = origin(symbols, interval);
            put(json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid(thread),
                    "ts": micros(interval.start), "dur": span(interval.start, interval.end), "args": {"from": from}}));
        }
        ExportItem::Held(thread, object, lock, site, from, to) => {
            let place = symbols.site(site, to).describe();
            let name = format!("holds {}", object.name());
            let id = format!("{lock:#x}/{}", tid(thread));
            let args = json!({"lock": format!("{lock:#x}"), "taken": place});
            put(
                json!({"ph": "b", "cat": "hold", "id": id, "name": name, "pid": pid, "tid": tid(thread), "ts": micros(from), "args": args}),
            );
            put(
                json!({"ph": "e", "cat": "hold", "id": id, "name": name, "pid": pid, "tid": tid(thread), "ts": micros(to)}),
            );
        }
        ExportItem::Request(request) => {
            let id = format!("{:#x}", request.id);
            let tid = request.worked().next().map_or(0, |work| tid(work.thread));
            let name = format!("request {}", request.id);
            put(
                json!({"ph": "b", "cat": "request", "id": id, "name": name, "pid": pid, "tid": tid, "ts": micros(request.start)}),
            );
            put(
                json!({"ph": "e", "cat": "request", "id": id, "name": name, "pid": pid, "tid": tid, "ts": micros(request.end)}),
            );
        }
    });
    failed.set(attempt.failed());
    attempt.run(|| writeln!(out, "\n]}}"));
    attempt.finish(read)
}
