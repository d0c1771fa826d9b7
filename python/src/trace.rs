//! Traces of the profiler: events and requests as tables, and the timeline of one request.
//!
//! `leeward-profile` defines their meaning.

use crate::errors;
use crate::table::{Field, Records, Table};
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::requests::Request;
use leeward_profile::analysis::select::{Functions, Selector};
use leeward_profile::analysis::timeline::{self, RequestChoice};
use leeward_profile::analysis::weights::RequestWeights;
use leeward_profile::export::EventRow;
use leeward_profile::render;
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Damage, Trace, ignore_progress};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::ffi::CString;
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
    of_trace(py, &path, |trace| events(trace, from, to))
}

/// Opens a trace and makes something of it without the interpreter. Warns of damage, as the program
/// does: the answer lacks what can't be read.
fn of_trace<T: Send>(
    py: Python<'_>,
    path: &Path,
    make: impl FnOnce(&Trace) -> Result<T, String> + Send,
) -> PyResult<T> {
    let made = py.detach(|| {
        let trace = Trace::open(path, &mut ignore_progress).map_err(|error| error.to_string())?;
        let damage = Damage { missing_end: false, ..trace.damage().clone() };
        Ok((make(&trace)?, damage.to_string()))
    });
    let (made, damage) =
        made.map_err(|error: String| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))?;
    if let Some(first) = damage.lines().next() {
        let more = damage.lines().count() - 1;
        let more = if more > 0 { format!("; and {more} more: `leeward profile info`") } else { String::new() };
        let text = CString::new(format!("{}: {first}{more}", path.display())).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    Ok(made)
}

fn events(trace: &Trace, from: f64, to: f64) -> Result<Table, String> {
    let mut symbols = Symbols::new(trace, Options::default());
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

const REQUEST: [(&str, Field); 8] = [
    ("id", Field::Whole),
    ("start_us", Field::Float),
    ("end_us", Field::Float),
    ("latency_us", Field::Float),
    ("worked_us", Field::Float),
    ("queued_us", Field::Float),
    ("threads", Field::Text),
    ("weight", Field::Whole),
];

/// Requests of a profiler's trace, in the order of their ends. Times are in µs from its start.
#[pyfunction]
#[pyo3(signature = (path, request_fn=None))]
pub(crate) fn trace_requests(py: Python<'_>, path: PathBuf, request_fn: Option<String>) -> PyResult<Table> {
    of_trace(py, &path, |trace| requests(trace, request_fn))
}

fn requests(trace: &Trace, request_fn: Option<String>) -> Result<Table, String> {
    let mut symbols = Symbols::new(trace, Options::default());
    let selection = selection(trace, &mut symbols, request_fn)?;
    let weights = RequestWeights::new(trace, &selection);
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
        records.whole("weight", weights.weight(&request) as i64);
    };
    let read = Selector::all(trace, &selection, &mut ignore_progress, each);
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
            if functions.is_empty() {
                return Err(format!("no call of `{name}` was recorded"));
            }
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
    of_trace(py, &path, |trace| drawn(trace, id, request_fn))
}

fn drawn(trace: &Trace, id: Option<u64>, request_fn: Option<String>) -> Result<(String, String), String> {
    let mut symbols = Symbols::new(trace, Options::default());
    let selection = selection(trace, &mut symbols, request_fn)?;
    let which = id.map_or(RequestChoice::Slowest, RequestChoice::Id);
    let found = timeline::timeline(trace, &mut symbols, &selection, which, &mut ignore_progress);
    let found = found.map_err(|error| error.to_string())?.ok_or_else(|| match id {
        Some(id) => format!("no request {id} has ended in the trace"),
        None => "no request has ended in the trace".into(),
    })?;
    Ok((render::page(&found, &trace.header().command), render::timeline(&found)))
}
