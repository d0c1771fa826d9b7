//! Export of traces for other tools: Perfetto's native format, Chrome's JSON, CSV, Parquet, and
//! folded stacks for flame graphs.
//!
//! All formats are streamed.

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

use crate::analysis::follow::follow;
use crate::analysis::{Interval, Request, Selection};
use crate::format::ObjectKind;
use crate::join::JoinedTimeline;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protocol buffers.
    Perfetto,
    /// Chrome's trace events in JSON.
    Chrome,
    /// Lines, one per event.
    Csv,
    /// Columnar rows, one per event.
    Parquet,
    /// Stacks of requests, with nanoseconds.
    Folded,
}

/// Part of the trace to export.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Selection of requests.
    pub selection: Selection,
    /// Folded stacks only: least latency of a request, in nanoseconds.
    pub slower_than: u64,
}

/// Reason why an export failed.
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
/// The trace can't be read any more, `watch` stops the reading, or writing fails.
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

/// Writes the timeline of a request of several processes in Perfetto's format: a process track for
/// each, and a track for each thread.
///
/// # Errors
/// Writing fails.
pub fn export_joined(timeline: &JoinedTimeline, out: &mut dyn Write) -> io::Result<()> {
    perfetto::export_joined(timeline, out)
}

/// Runs writes until one fails; remembers the failure and skips further writes.
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

    /// Returns the write error, or else the read error.
    fn finish(self, read: Result<(), TraceError>) -> Result<(), ExportError> {
        match self.0 {
            Some(error) => Err(error.into()),
            None => Ok(read?),
        }
    }
}

/// Wraps `watch` so that reading stops as soon as writing has failed.
fn watching<'a>(
    watch: &'a mut ProgressCallback<'_>,
    failed: &'a std::cell::Cell<bool>,
) -> impl FnMut(crate::trace::Progress) -> std::ops::ControlFlow<()> + 'a {
    move |progress| if failed.get() { std::ops::ControlFlow::Break(()) } else { watch(progress) }
}

/// Part of a thread's time that an export shows.
enum ExportItem<'a> {
    /// An activity of a thread. Intervals of a thread arrive in batches, each in nesting order.
    Interval(u32, &'a Interval),
    /// A hold of a lock: thread, kind, lock, site, start, end.
    Held(u32, ObjectKind, u64, u64, u64, u64),
    /// A finished request.
    Request(&'a Request),
}

/// Intervals of a thread that are sorted together.
const BATCH: usize = 1 << 14;
/// Limit of buffered intervals of all threads.
const BUFFERED_MAX: usize = 1 << 19;

/// Reports activities, locks and requests, reading the trace once in the order of time.
fn walk(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    watch: &mut ProgressCallback<'_>,
    mut show: impl FnMut(ExportItem<'_>, &mut Symbols),
) -> Result<(), TraceError> {
    let mut histories: std::collections::BTreeMap<u32, crate::analysis::thread_history::ThreadHistory> =
        std::collections::BTreeMap::new();
    let mut buffered = 0;
    let gaps = crate::analysis::clock_gaps::ClockGaps::from_trace(trace);
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
            let history = histories.entry(event.thread).or_default();
            let before = history.intervals.len();
            history.add_event(event, &gaps);
            buffered += history.intervals.len() - before;
            if history.intervals.len() >= BATCH {
                buffered -= history.intervals.len();
                batch(event.thread, history, symbols, &mut show);
            }
            if buffered >= BUFFERED_MAX {
                buffered = 0;
                histories.iter_mut().for_each(|(thread, history)| batch(*thread, history, symbols, &mut show));
            }
        },
    )?;
    histories.iter_mut().for_each(|(thread, history)| batch(*thread, history, symbols, &mut show));
    Ok(())
}

fn batch(
    thread: u32,
    history: &mut crate::analysis::thread_history::ThreadHistory,
    symbols: &mut Symbols,
    show: &mut impl FnMut(ExportItem<'_>, &mut Symbols),
) {
    let mut intervals: Vec<Interval> = history.intervals.drain(..).collect();
    crate::analysis::activity::nest(&mut intervals);
    intervals.iter().for_each(|interval| show(ExportItem::Interval(thread, interval), symbols));
}

/// Returns name and category of an interval.
fn named(symbols: &mut Symbols, interval: &Interval) -> (String, &'static str) {
    use crate::analysis::Activity;
    use crate::format::event::OffCpu;
    match interval.activity {
        Activity::Call { function, .. } => (symbols.location(function, interval.end).function(), "call"),
        Activity::Wait { object, .. } => (format!("wait: {}", object.name()), "wait"),
        Activity::Off(OffCpu::Blocked) => ("off CPU: blocked".into(), "sched"),
        Activity::Off(OffCpu::Runnable) => ("off CPU: runnable".into(), "sched"),
        Activity::Off(OffCpu::Stopped) => ("off CPU: stopped".into(), "sched"),
    }
}

/// Returns the origin of an interval: the caller, or the location of the wait.
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
