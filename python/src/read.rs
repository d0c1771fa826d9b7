//! Recordings of servers and traces of the profiler as tables, so that they meet the results of simulations in one frame.

use crate::errors;
use crate::table::{Field, Records, Table};
use leeward_control::recording::{Answer, Entry, Item, Reader, SessionCall};
use leeward_control::server::{Gauges, Verdict};
use leeward_profile::analysis::requests::{Request, Tracker};
use leeward_profile::export::Row;
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// First bytes of a recording (docs/recording-format.md).
pub(crate) const MAGIC: &[u8] = b"LEEWREC\n";

/// Entries of a server's recording, in its order. Times in µs from its beginning.
#[pyfunction]
pub(crate) fn recording(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let read = py.detach(|| std::fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| entries(&bytes)));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

const ENTRY: [(&str, Field); 15] = [
    ("time_us", Field::Float),
    ("event", Field::Text),
    ("core", Field::Whole),
    ("session", Field::Whole),
    ("pending", Field::Whole),
    ("demand", Field::Whole),
    ("priority", Field::Whole),
    ("delay_us", Field::Float),
    ("sojourn_us", Field::Float),
    ("verdict", Field::Text),
    ("window", Field::Whole),
    ("arrivals", Field::Whole),
    ("drops", Field::Whole),
    ("credit_pool", Field::Whole),
    ("credits_issued", Field::Whole),
];

fn entries(bytes: &[u8]) -> Result<Table, String> {
    let mut records = Records::new(&ENTRY);
    let (mut first, mut last) = (None, 0.0);
    for item in Reader::items(bytes) {
        let Item::Entry(entry) = item.map_err(|error| error.to_string())? else { continue };
        if let Some(now) = entry.now() {
            let first = *first.get_or_insert(now.0);
            last = now.0.saturating_sub(first) as f64 / 1e3;
        }
        records.row();
        records.float("time_us", last); // of a call that has no time: that of the one before
        note(&mut records, &entry);
    }
    Ok(records.finish())
}

fn note(records: &mut Records, entry: &Entry) {
    match entry {
        Entry::Session(entry) => {
            records.text("event", entry.call.name());
            records.whole("core", entry.core.0.into());
            records.whole("session", entry.slot.0.into());
            records.whole("pending", entry.pending.into());
            records.whole("demand", entry.demand.into());
            records.whole("window", entry.window.0.into());
            match entry.call {
                SessionCall::Request(event) => {
                    records.whole("priority", event.priority.level().into());
                    records.float("delay_us", event.delay.as_micros_f64());
                }
                SessionCall::Reply(event) => records.float("sojourn_us", event.sojourn.as_micros_f64()),
                _ => {}
            }
            if let Answer::Verdict(verdict) = entry.answer {
                records.text("verdict", word(&verdict));
            }
        }
        Entry::Execute { core, waited, verdict } => {
            records.text("event", "execute");
            records.whole("core", core.0.into());
            records.float("delay_us", waited.as_micros_f64());
            records.text("verdict", word(verdict));
        }
        Entry::Next { core, .. } => {
            records.text("event", "next");
            records.whole("core", core.0.into());
        }
        Entry::Tick { signals, gauges } => {
            records.text("event", "tick");
            records.float("delay_us", signals.delay().as_micros_f64());
            records.whole("arrivals", signals.arrivals as i64);
            records.whole("drops", signals.drops as i64);
            gauged(records, gauges);
        }
        Entry::Granted { gauges, .. } => {
            records.text("event", "granted");
            gauged(records, gauges);
        }
        Entry::Downstream { gauges, .. } => {
            records.text("event", "downstream");
            gauged(records, gauges);
        }
        Entry::Threading { .. } => records.text("event", "threading"),
    }
}

fn gauged(records: &mut Records, gauges: &Gauges) {
    gauges.credit_pool.iter().for_each(|credits| records.whole("credit_pool", *credits));
    gauges.credits_issued.iter().for_each(|credits| records.whole("credits_issued", *credits));
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Admit => "admit",
        Verdict::Reject(_) => "reject",
    }
}

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

/// Events of a profiler's trace, in the order of time. Times in µs from its beginning.
#[pyfunction]
#[pyo3(signature = (path, from_us=None, to_us=None))]
pub(crate) fn trace_events(py: Python<'_>, path: PathBuf, from_us: Option<f64>, to_us: Option<f64>) -> PyResult<Table> {
    let (from, to) = (from_us.unwrap_or(0.0), to_us.unwrap_or(f64::INFINITY));
    let read = py.detach(|| events(&path, from, to));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

fn events(path: &Path, from: f64, to: f64) -> Result<Table, String> {
    let trace = Trace::open(path, &mut ignore).map_err(|error| error.to_string())?;
    let mut symbols = Symbols::new(&trace, Options::default());
    let mut records = Records::new(&EVENT);
    let zero = trace.counts().first;
    let micros = |time: u64| time.saturating_sub(zero) as f64 / 1e3;
    let each = |event: &leeward_profile::format::Event| {
        let row = Row::of(event, &mut symbols);
        if micros(event.time) < from || micros(row.start) > to {
            return;
        }
        records.row();
        records.text("thread", &trace.thread_name(event.thread));
        records.text("kind", row.kind);
        records.float("start_us", micros(row.start));
        records.float("end_us", micros(event.time));
        records.float("wait_us", row.wait as f64 / 1e3);
        for (name, text) in [("name", &row.name), ("place", &row.place)] {
            if !text.is_empty() {
                records.text(name, text);
            }
        }
        if row.object != 0 {
            records.text("object", &format!("{:#x}", row.object));
        }
        row.id.iter().for_each(|id| records.whole("id", *id as i64));
    };
    trace.in_order(&mut ignore, |_| true, each).map_err(|error| error.to_string())?;
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

/// Requests of a profiler's trace, in the order of their ends. Times in µs from its beginning.
#[pyfunction]
pub(crate) fn trace_requests(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let read = py.detach(|| requests(&path));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

fn requests(path: &Path) -> Result<Table, String> {
    let trace = Trace::open(path, &mut ignore).map_err(|error| error.to_string())?;
    let mut records = Records::new(&REQUEST);
    let zero = trace.counts().first;
    let micros = |time: u64| time.saturating_sub(zero) as f64 / 1e3;
    let mut tracker = Tracker::default();
    let mut done = |request: Request| {
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
    let read = trace.in_order(&mut ignore, Tracker::concerns, |event| tracker.event(event, &mut done));
    read.map_err(|error| error.to_string())?;
    Ok(records.finish())
}
