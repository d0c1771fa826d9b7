//! Traces of the profiler: events and requests as tables, and the timeline of one request.
//!
//! `leeward-profile` defines their meaning.

use crate::errors;
use crate::table::{Field, Records, Table};
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::requests::Request;
use leeward_profile::analysis::select::{Functions, Selector};
use leeward_profile::analysis::timeline::{self, RequestChoice};
use leeward_profile::export::EventRow;
use leeward_profile::render;
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

const EVENT: [(&str, Field); 9] = [
    ("thread", Field::Text),
    ("kind", Field::Text),
    ("start_us", Field::Float),
    ("end_us", Field::Float),
    ("wait_us", Field::Float),
    ("name", Field::Text),
    ("place", Field::Text),
    ("object", Field::Text),
    ("id", Field::Whole),
];

/// Events of a profiler's trace, in order of time. Times are in µs from its start.
#[pyfunction]
#[pyo3(signature = (path, from_us=None, to_us=None))]
pub(crate) fn trace_events(py: Python<'_>, path: PathBuf, from_us: Option<f64>, to_us: Option<f64>) -> PyResult<Table> {
    let (from, to) = (from_us.unwrap_or(0.0), to_us.unwrap_or(f64::INFINITY));
    let read = py.detach(|| events(&path, from, to));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

fn events(path: &Path, from: f64, to: f64) -> Result<Table, String> {
    let trace = Trace::open(path, &mut ignore_progress).map_err(|error| error.to_string())?;
    let mut symbols = Symbols::new(&trace, Options::default());
    let mut records = Records::new(&EVENT);
    let zero = trace.counts().first;
    let micros = |time: u64| time.saturating_sub(zero) as f64 / 1e3;
    let each = |event: &leeward_profile::format::Event| {
        let row = EventRow::from_event(event, &mut symbols);
        if micros(event.time) < from || micros(row.start) > to {
            return;
        }
        records.row();
        records.text("thread", &trace.thread_name(event.thread));
        records.text("kind", row.kind);
        records.float("start_us", micros(row.start));
        records.float("end_us", micros(event.time));
        records.float("wait_us", row.wait as f64 / 1e3);
        for (name, text) in [("name", &row.name), ("place", &row.location)] {
            if !text.is_empty() {
                records.text(name, text);
            }
        }
        if row.object != 0 {
            records.text("object", &format!("{:#x}", row.object));
        }
        row.id.iter().for_each(|id| records.whole("id", *id as i64));
    };
    trace.in_order(&mut ignore_progress, |_| true, each).map_err(|error| error.to_string())?;
    Ok(records.finish())
}

const REQUEST: [(&str, Field); 7] = [
    ("id", Field::Whole),
    ("start_us", Field::Float),
    ("end_us", Field::Float),
    ("latency_us", Field::Float),
    ("worked_us", Field::Float),
    ("queued_us", Field::Float),
    ("threads", Field::Text),
];

/// Requests of a profiler's trace, in the order of their ends. Times are in µs from its start.
#[pyfunction]
#[pyo3(signature = (path, request_fn=None))]
pub(crate) fn trace_requests(py: Python<'_>, path: PathBuf, request_fn: Option<String>) -> PyResult<Table> {
    let read = py.detach(|| requests(&path, request_fn));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

fn requests(path: &Path, request_fn: Option<String>) -> Result<Table, String> {
    let trace = Trace::open(path, &mut ignore_progress).map_err(|error| error.to_string())?;
    let mut symbols = Symbols::new(&trace, Options::default());
    let selection = selection(&trace, &mut symbols, request_fn)?;
    let mut records = Records::new(&REQUEST);
    let zero = trace.counts().first;
    let micros = |time: u64| time.saturating_sub(zero) as f64 / 1e3;
    let each = |request: Request| {
        records.row();
        records.whole("id", request.id as i64);
        records.float("start_us", micros(request.start));
        records.float("end_us", micros(request.end));
        records.float("latency_us", request.latency() as f64 / 1e3);
        let worked: u64 = request.work.iter().map(|work| work.end.saturating_sub(work.start)).sum();
        let queued: u64 = request.queued.iter().map(|(_, from, until)| until.saturating_sub(*from)).sum();
        records.float("worked_us", worked as f64 / 1e3);
        records.float("queued_us", queued as f64 / 1e3);
        let mut threads: Vec<String> = request.work.iter().map(|work| trace.thread_name(work.thread)).collect();
        threads.dedup();
        records.text("threads", &threads.join(", "));
    };
    let read = Selector::all(&trace, &selection, &mut ignore_progress, each);
    read.map_err(|error| error.to_string())?;
    Ok(records.finish())
}

/// Selects the requests that the program marked, or the calls of `request_fn`.
fn selection(trace: &Trace, symbols: &mut Symbols, request_fn: Option<String>) -> Result<Selection, String> {
    match request_fn {
        Some(name) if trace.counts().calls == 0 => Err(format!("no call of `{name}` was recorded")),
        Some(name) => {
            let functions =
                Functions::find(trace, symbols, &name, &mut ignore_progress).map_err(|error| error.to_string())?;
            Ok(Selection::CallsOf(functions))
        }
        None if trace.counts().requests == 0 => {
            Err("the program marks no requests; accepted: request_fn, the function whose calls are requests".into())
        }
        None => Ok(Selection::Marked),
    }
}

/// The timeline of the request with this id, or of the slowest: a self-contained page, and a text.
#[pyfunction]
#[pyo3(signature = (path, id=None, request_fn=None))]
pub(crate) fn trace_timeline(
    py: Python<'_>,
    path: PathBuf,
    id: Option<u64>,
    request_fn: Option<String>,
) -> PyResult<(String, String)> {
    let read = py.detach(|| drawn(&path, id, request_fn));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

fn drawn(path: &Path, id: Option<u64>, request_fn: Option<String>) -> Result<(String, String), String> {
    let trace = Trace::open(path, &mut ignore_progress).map_err(|error| error.to_string())?;
    let mut symbols = Symbols::new(&trace, Options::default());
    let selection = selection(&trace, &mut symbols, request_fn)?;
    let which = id.map_or(RequestChoice::Slowest, RequestChoice::Id);
    let found = timeline::timeline(&trace, &mut symbols, &selection, which, &mut ignore_progress);
    let found = found.map_err(|error| error.to_string())?.ok_or_else(|| match id {
        Some(id) => format!("no request {id} has ended in the trace"),
        None => "no request has ended in the trace".into(),
    })?;
    Ok((render::page(&found, &trace.header().command), render::timeline(&found)))
}
