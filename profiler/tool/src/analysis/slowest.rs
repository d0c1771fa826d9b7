//! The slowest requests, each with a breakdown of its time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::breakdown::Breakdown;
use super::follow::{TraceHistory, follow};
use super::requests::Request;
use super::select::Selection;
use super::weights::RequestWeights;
use crate::histogram::Histogram;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// A slow request. Spans in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRequest {
    /// The request's id.
    pub id: u64,
    /// Start of the request, from the start of the trace.
    pub start: u64,
    /// The request's latency.
    pub latency: u64,
    /// The request's label, if it has one.
    pub label: Option<String>,
    /// The threads that worked on the request.
    pub threads: Vec<String>,
    /// Causes of the spent time, the largest first.
    pub causes: Vec<(String, u64)>,
    /// Part of the history, or of the request's spans, was discarded.
    pub incomplete: bool,
}

/// Statistics of all requests, and the slowest ones.
#[derive(Clone, Debug, Default)]
pub struct RequestSummary {
    /// Number of requests, also of those that others in the trace stand for.
    pub requests: u64,
    /// The trace holds all slow requests, but only some of the others, which stand for all.
    pub weighted: bool,
    /// Their latencies; 0 where none is known.
    pub latencies: Histogram,
    /// The slowest requests, the slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Number of requests without an end.
    pub unfinished: u64,
}

/// Returns the `most` slowest requests.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn slowest(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    most: usize,
    watch: &mut ProgressCallback<'_>,
) -> Result<RequestSummary, TraceError> {
    let weights = RequestWeights::new(trace, selection);
    let mut latencies = Histogram::default();
    let mut kept: BTreeMap<(u64, Reverse<u64>, u64), (Request, Breakdown)> = BTreeMap::new();
    let mut take = |request: &Request, history: &TraceHistory| {
        latencies.record_many(request.latency(), weights.weight(request));
        let key = (request.latency(), Reverse(request.start), request.id);
        if kept.len() < most || kept.first_key_value().is_some_and(|(least, _)| *least < key) {
            kept.insert(key, (request.clone(), history.breakdown(request)));
            if kept.len() > most {
                kept.pop_first();
            }
        }
    };
    let unfinished = follow(trace, symbols, selection, watch, |request, history, _| take(request, history))?;
    let mut slowest = Vec::new();
    for (request, breakdown) in kept.into_values().rev() {
        let mut causes: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, nanos) in breakdown.causes.iter() {
            *causes.entry(cause.describe(symbols, request.end)).or_default() += nanos;
        }
        let mut causes: Vec<(String, u64)> = causes.into_iter().collect();
        causes.sort_by_key(|(_, nanos)| Reverse(*nanos));
        let mut threads: Vec<u32> = request.worked().map(|work| work.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        slowest.push(SlowRequest {
            id: request.id,
            start: request.start.saturating_sub(trace.counts().first),
            latency: request.latency(),
            label: trace.label(request.label).map(String::from),
            threads: threads.into_iter().map(|thread| trace.thread_name(thread)).collect(),
            causes,
            incomplete: breakdown.incomplete,
        });
    }
    let requests = weights.counted(latencies.count());
    latencies.record_many(0, weights.unknown());
    Ok(RequestSummary { requests, weighted: weights.are_uneven(), latencies, slowest, unfinished })
}
