//! `leeward profile stats`: ranks functions, waits and holds by a percentile.

use std::cmp::Reverse;

use leeward_profile::span::format_nanos;
use leeward_profile::stats::{self, Collector, Options, SpanKind, StatsRow};
use leeward_profile::trace::cpus;
use serde_json::json;

use anyhow::anyhow;

use super::args::StatsArgs;
use super::read::{OpenTrace, failure};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};
use crate::table::{Align, Table};

/// Maximum width of a name, in characters.
const NAME_WIDTH: usize = 70;

/// Runs the command.
pub(super) fn stats(args: &StatsArgs) -> Result<(), Failure> {
    let mut options =
        Options { percentile: args.percentile, by_caller: args.by_caller, filter: args.filter.clone(), thread: None };
    let source = &args.source;
    let (reading, rows, requests) = if args.per_request {
        let mut reading = OpenTrace::open(&source.trace, &source.symbols)?;
        let selection = reading.selection(&args.what)?;
        let mut watch = reading.progress("following requests");
        let counted = stats::per_request(&reading.trace, &mut reading.symbols, &selection, &options, &mut watch);
        let (rows, requests) = counted.map_err(failure)?;
        if requests == 0 {
            return Err(reading.selection_failure(&args.what, 0));
        }
        (reading, rows, Some(requests))
    } else {
        let (mut reading, collector) = match args.thread {
            // The number of a thread in the trace is known only after reading; a second pass is
            // cheap.
            Some(tid) => {
                let reading = OpenTrace::open(&source.trace, &source.symbols)?;
                let known = reading.trace.threads().find(|thread| thread.tid == tid).map(|thread| thread.number);
                options.thread = Some(known.ok_or_else(|| Failure::Input(anyhow!("no thread {tid} in the trace")))?);
                let mut collector = Collector::new(&options);
                let mut watch = reading.progress("counting");
                reading.trace.overlapping(0, u64::MAX, &mut watch, |event| collector.event(event)).map_err(failure)?;
                (reading, collector)
            }
            None => OpenTrace::open_with(&source.symbols, |watch| stats::open(&source.trace, &options, cpus(), watch))?,
        };
        let mut watch = reading.progress("looking for recursion");
        let counted = stats::rows(&reading.trace, collector, &mut reading.symbols, &options, &mut watch);
        let mut rows = counted.map_err(failure)?;
        if reading.is_sampled() {
            // Short calls are seen in proportion to their time, which is all that samples tell.
            rows.sort_by_key(|row| Reverse(row.total));
            rows.iter_mut().for_each(|row| row.unresolved = false);
        }
        (reading, rows, None)
    };
    reading.warn_of_symbols();
    if source.json {
        let header = reading.trace.header();
        let value = json!({
            "percentile": args.percentile, "requests": requests, "rows": rows.iter().take(args.limit).collect::<Vec<_>>(),
            "call_threshold_ns": header.call_threshold, "resolution_ns": reading.trace.resolution(), "engine": header.engine,
        });
        return stdout::print(&value.to_string());
    }
    stdout::print(&text(&reading, &rows, args, requests))
}

fn text(reading: &OpenTrace, rows: &[StatsRow], args: &StatsArgs, requests: Option<u64>) -> String {
    let header = reading.trace.header();
    let wanted = format!("p{}", args.percentile);
    // These two have columns anyway.
    let is_extra = ![50.0, 99.0].contains(&args.percentile);
    // Spans of calls up to here say nothing.
    let least = if reading.is_sampled() && requests.is_none() { 2 * reading.trace.resolution() } else { 0 };
    let mut out = String::new();
    let sorts = [(SpanKind::Call, "function"), (SpanKind::Wait, "waited for"), (SpanKind::Hold, "held")];
    for (sort, heading) in sorts {
        let of: Vec<&StatsRow> =
            rows.iter().filter(|row| row.sort == sort && !row.unresolved).take(args.limit).collect();
        if of.is_empty() {
            continue;
        }
        let mut columns = vec![
            (heading, Align::Left),
            (if reading.is_sampled() && requests.is_none() { "seen" } else { "count" }, Align::Right),
            ("total", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
        ];
        columns.extend(is_extra.then_some((wanted.as_str(), Align::Right)));
        columns.push(("max", Align::Right));
        let mut table = Table::new(&columns);
        for row in of {
            let small = |nanos: u64| if nanos <= least { "–".into() } else { format_nanos(nanos) };
            let mut cells = vec![
                truncate(&row_name(row)),
                row.count.to_string(),
                format_nanos(row.total),
                small(row.p50),
                small(row.p99),
            ];
            cells.extend(is_extra.then(|| small(row.wanted)));
            cells.push(small(row.max));
            table.row(cells);
            if let Some(caller) = &row.caller {
                let mut cells = vec![truncate(&format!("  from {caller}"))];
                cells.resize(columns.len(), String::new());
                table.row(cells);
            }
        }
        out += &format!("{table}\n");
    }
    match requests {
        Some(requests) => {
            out += &format!(
                "Time per request with all that a function calls, over {requests} {}.\n{}",
                reading.describe_requests(&args.what),
                reading.coverage_note(&args.what)
            )
        }
        None if reading.is_sampled() => {
            out += &format!(
                "Totals are estimated from samples {} of CPU time apart, and contain time off the CPU. A function is seen once\n\
                 in successive samples. Spans up to {} are left out: samples don't tell them.\n",
                format_nanos(reading.trace.resolution()),
                format_nanos(least)
            )
        }
        None => {
            out += &format!(
                "Recorded calls only: calls shorter than {} are not counted.\n",
                format_nanos(header.call_threshold)
            )
        }
    }
    let unresolved = rows.iter().filter(|row| row.unresolved).count();
    if unresolved > 0 {
        let tick = format_nanos(reading.trace.resolution());
        out +=
            &format!("{unresolved} more have a {wanted} of at most one tick ({tick}), the resolution of the trace.\n");
    }
    out
}

/// Name of a row, with the number of wrappers that only call the function.
fn row_name(row: &StatsRow) -> String {
    match row.wrappers {
        0 => row.name.clone(),
        1 => format!("{} (and 1 wrapper of it)", row.name),
        more => format!("{} (and {more} wrappers of it)", row.name),
    }
}

fn truncate(name: &str) -> String {
    let name = sanitize(name);
    if name.chars().count() <= NAME_WIDTH { name } else { name.chars().take(NAME_WIDTH - 1).chain(['…']).collect() }
}
