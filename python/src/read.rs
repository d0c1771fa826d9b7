//! Recordings of servers as tables with the columns of simulations' results, so that both fit in
//! one data frame.
//!
//! Traces of the profiler are in `trace`.

use crate::errors;
use crate::table::{Field, Records, Table};
use leeward_core::server::{Gauges, Outcome, Verdict};
use leeward_recording::{Answer, Entry, Item, ReadError, Reader, SessionCall};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Entries of a server's recording, in order, and what is wrong with a recording that is cut off.
/// Times are in µs from its first timed entry.
#[pyfunction]
pub(crate) fn recording(py: Python<'_>, path: PathBuf) -> PyResult<(Table, Option<String>)> {
    let read = py.detach(|| std::fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| entries(&bytes)));
    read.map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
}

const ENTRY: [(&str, Field); 16] = [
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
    ("outcome", Field::Text),
    ("window", Field::Whole),
    ("arrivals", Field::Whole),
    ("drops", Field::Whole),
    ("credit_pool", Field::Whole),
    ("credits_issued", Field::Whole),
];

fn entries(bytes: &[u8]) -> Result<(Table, Option<String>), String> {
    let mut records = Records::new(&ENTRY);
    let (mut first, mut last) = (None, 0.0);
    for item in Reader::items(bytes) {
        let entry = match item {
            Ok(Item::Entry(entry)) => entry,
            Ok(_) => continue,
            // The server was killed; its last entries are what a reader wants to see.
            Err(error @ ReadError::Truncated { entries: 1.., .. }) => {
                return Ok((records.finish(), Some(error.to_string())));
            }
            Err(error) => return Err(error.to_string()),
        };
        if let Some(now) = entry.now() {
            let first = *first.get_or_insert(now.0);
            last = now.0.saturating_sub(first) as f64 / 1e3;
        }
        records.row();
        records.float("time_us", last); // calls without a time get the previous one
        add_entry(&mut records, &entry);
    }
    Ok((records.finish(), None))
}

fn add_entry(records: &mut Records, entry: &Entry) {
    match entry {
        Entry::Session(entry) => {
            let name = if matches!(entry.call, SessionCall::Reply(_)) { "reply" } else { entry.call.name() };
            records.text("event", name); // the outcome is in another column
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
                SessionCall::Reply(event) => {
                    records.float("sojourn_us", event.sojourn.as_micros_f64());
                    records.text("outcome", outcome_name(event.outcome));
                }
                _ => {}
            }
            if let Answer::Verdict(verdict) = entry.answer {
                records.text("verdict", verdict_name(&verdict));
            }
        }
        Entry::Dequeue { core, waited, verdict } => {
            records.text("event", "execute");
            records.whole("core", core.0.into());
            records.float("delay_us", waited.as_micros_f64());
            records.text("verdict", verdict_name(verdict));
        }
        Entry::NextToWake { core, .. } => {
            records.text("event", "next");
            records.whole("core", core.0.into());
        }
        Entry::Tick { signals, gauges } => {
            records.text("event", "tick");
            records.float("delay_us", signals.delay().as_micros_f64());
            records.whole("arrivals", signals.arrivals as i64);
            records.whole("drops", signals.rejections as i64);
            add_gauges(records, gauges);
        }
        Entry::CoreGrant { gauges, .. } => {
            records.text("event", "granted");
            add_gauges(records, gauges);
        }
        Entry::Downstream { gauges, .. } => {
            records.text("event", "downstream");
            add_gauges(records, gauges);
        }
        Entry::Threading { .. } => records.text("event", "threading"),
    }
}

fn add_gauges(records: &mut Records, gauges: &Gauges) {
    gauges.credit_pool.iter().for_each(|credits| records.whole("credit_pool", *credits));
    gauges.credits_issued.iter().for_each(|credits| records.whole("credits_issued", *credits));
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Admit => "admit",
        Verdict::Reject(_) => "reject",
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Rejected => "dropped",
    }
}
