//! Traces for other tools: Perfetto's native format, Chrome's JSON, CSV, Parquet, and folded stacks for flame graphs. All
//! stream.

mod chrome;
mod csv;
mod folded;
mod parquet;
mod perfetto;
mod proto;
mod rows;

pub use rows::EventRow;

use std::io::{self, Write};

use thiserror::Error;

use crate::analysis::follow::{Follower, TraceHistory};
use crate::analysis::{Interval, Request, Selection};
use crate::format::{Event, ObjectKind};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protocol buffers.
    Perfetto,
    /// Chrome's trace events in JSON.
    Chrome,
    /// Lines, one per event.
    Csv,
    /// Rows in columns, one per event.
    Parquet,
    /// Stacks with nanoseconds, of requests.
    Folded,
}

/// Part of the trace to take.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Selection of requests.
    pub selection: Selection,
    /// Folded stacks only: of requests at least this slow, in nanoseconds.
    pub slower_than: u64,
}

/// Why an export failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The trace can't be read any more.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Writing failed.
    #[error("writing: {0}")]
    Write(#[from] io::Error),
}

/// Writes a trace in another format.
///
/// # Errors
/// When the trace can't be read any more, the watcher stops it, or writing fails.
pub fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    format: Format,
    options: &Options,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    match format {
        Format::Perfetto => perfetto::export(trace, symbols, options, out, watch),
        Format::Chrome => chrome::export(trace, symbols, options, out, watch),
        Format::Csv => csv::export(trace, symbols, out, watch),
        Format::Parquet => parquet::export(trace, symbols, out, watch),
        Format::Folded => folded::export(trace, symbols, options, out, watch),
    }
}

/// Goes on after a failure to write without writing any more, and remembers it.
struct Attempt(Option<io::Error>);

impl Attempt {
    fn new() -> Attempt {
        Attempt(None)
    }

    fn run(&mut self, write: impl FnOnce() -> io::Result<()>) {
        if self.0.is_none() {
            self.0 = write().err();
        }
    }

    fn failed(&self) -> bool {
        self.0.is_some()
    }

    /// The failure to write, or else the one to read.
    fn finish(self, read: Result<(), TraceError>) -> Result<(), ExportError> {
        match self.0 {
            Some(error) => Err(error.into()),
            None => Ok(read?),
        }
    }
}

/// A stop as soon as writing has failed.
fn watching<'a>(
    watch: &'a mut ProgressCallback<'_>,
    failed: &'a std::cell::Cell<bool>,
) -> impl FnMut(crate::trace::Progress) -> std::ops::ControlFlow<()> + 'a {
    move |progress| if failed.get() { std::ops::ControlFlow::Break(()) } else { watch(progress) }
}

/// Part of a thread's time that an export shows.
enum ExportItem<'a> {
    /// Something a thread did; threads' intervals come one batch after another, each batch in nesting order.
    Interval(u32, &'a Interval),
    /// A lock was held: thread, kind, lock, site, from, until.
    Held(u32, ObjectKind, u64, u64, u64, u64),
    /// A request is over.
    Request(&'a Request),
}

/// Intervals of a thread that are put in order together.
const BATCH: usize = 1 << 14;
/// Intervals of all threads that are held back.
const BUFFERED_MAX: usize = 1 << 19;

/// Hands out what threads did, locks and requests, reading the trace once in the order of time.
fn walk(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    watch: &mut ProgressCallback<'_>,
    mut show: impl FnMut(ExportItem<'_>, &mut Symbols),
) -> Result<(), TraceError> {
    let mut past: std::collections::BTreeMap<u32, crate::analysis::follow::ThreadHistory> =
        std::collections::BTreeMap::new();
    let mut held_back = 0;
    let unsure = crate::analysis::clock_gaps::ClockGaps::from_trace(trace);
    let mut selector = crate::analysis::select::Selector::new(selection);
    trace.in_order(
        watch,
        |_| true,
        |event| {
            if let crate::format::EventKind::Held { object, lock, site, hold, .. } = event.kind {
                show(
                    ExportItem::Held(event.thread, object, lock, site, event.time.saturating_sub(hold), event.time),
                    symbols,
                );
            }
            let mut ended = Vec::new();
            selector.event(event, |request| ended.push(request));
            ended.iter().for_each(|request| show(ExportItem::Request(request), symbols));
            let of = past.entry(event.thread).or_default();
            let before = of.intervals.len();
            of.add_event(event, &unsure);
            held_back += of.intervals.len() - before;
            if of.intervals.len() >= BATCH {
                held_back -= of.intervals.len();
                batch(event.thread, of, symbols, &mut show);
            }
            if held_back >= BUFFERED_MAX {
                held_back = 0;
                past.iter_mut().for_each(|(thread, of)| batch(*thread, of, symbols, &mut show));
            }
        },
    )?;
    past.iter_mut().for_each(|(thread, of)| batch(*thread, of, symbols, &mut show));
    Ok(())
}

fn batch(
    thread: u32,
    past: &mut crate::analysis::follow::ThreadHistory,
    symbols: &mut Symbols,
    show: &mut impl FnMut(ExportItem<'_>, &mut Symbols),
) {
    let mut intervals: Vec<Interval> = past.intervals.drain(..).collect();
    crate::analysis::activity::nest(&mut intervals);
    intervals.iter().for_each(|interval| show(ExportItem::Interval(thread, interval), symbols));
}

/// Name and category of an interval.
fn named(symbols: &mut Symbols, interval: &Interval) -> (String, &'static str) {
    use crate::analysis::Activity;
    use crate::format::event::OffCpu;
    match interval.activity {
        Activity::Call { function, .. } => (symbols.location(function, interval.end).function(), "call"),
        Activity::Wait { object, .. } => (format!("wait: {}", object.name()), "wait"),
        Activity::Off(OffCpu::Blocked) => ("off CPU: blocked".into(), "sched"),
        Activity::Off(OffCpu::Runnable) => ("off CPU: runnable".into(), "sched"),
    }
}

/// Where an interval came from: the caller, or where it waited.
fn origin(symbols: &mut Symbols, interval: &Interval) -> Option<String> {
    use crate::analysis::Activity;
    match interval.activity {
        Activity::Call { caller, .. } if caller != 0 => Some(symbols.caller(caller, interval.end).describe()),
        Activity::Wait { site, lock, .. } if site != 0 => {
            Some(format!("{lock:#x}, {}", symbols.site(site, interval.end).describe()))
        }
        _ => None,
    }
}

/// Follows requests with what is known of them; stops when `failed`.
fn follow(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    watch: &mut ProgressCallback<'_>,
    mut done: impl FnMut(&Request, &TraceHistory, &mut Symbols),
) -> Result<(), TraceError> {
    let mut follower = Follower::new(trace, selection);
    trace.in_order(watch, |_: &Event| true, |event| follower.event(event, symbols, &mut done))?;
    follower.finish(symbols, done);
    Ok(())
}
