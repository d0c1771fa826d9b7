//! Comparison of the slowest requests of the front process with the others, over all processes.
//!
//! At each process it divides the difference between the process itself and those that it calls,
//! and goes on with the one that has most of it. There, `analysis/tail` finds function and lock.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Joined;
use super::links::{RequestIndex, request};
use super::path::critical_path;
use crate::analysis::Selection;
use crate::analysis::tail::{Tail, compare_groups};
use crate::hash::Map;
use crate::histogram::Histogram;
use crate::span::format_nanos;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, TraceError};

/// Limit of processes on the way to the slow one.
const STEPS_MAX: usize = 16;

/// The comparison. Spans in nanoseconds per request of the front process.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedTail {
    /// The front process.
    pub front: String,
    /// Number of its requests.
    pub requests: u64,
    /// Number of the slowest among them.
    pub slow: u64,
    /// Latency from which a request is one of the slowest.
    pub threshold: u64,
    /// Mean latency of the slowest.
    pub slow_mean: u64,
    /// Mean latency of the others.
    pub rest_mean: u64,
    /// The processes on the way to the slow one; the front process is the first.
    pub steps: Vec<Step>,
    /// The last step's requests, compared within their process.
    pub tail: Option<Tail>,
}

/// Division of the difference at one process.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The process.
    pub process: String,
    /// Its requests in the slowest requests of the front process, and in the others.
    pub requests: [u64; 2],
    /// Parts of its requests' time, the greatest difference first.
    pub parts: Vec<Part>,
}

/// Kind of a part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// In the process itself.
    Own,
    /// In a request of another process.
    Called,
    /// Between both processes: network, and waiting until the other process takes the request.
    Transit,
    /// In a call to a process without a recording of the request.
    Unrecorded,
}

/// Part of the requests' time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Kind of the part.
    pub kind: PartKind,
    /// The process: the own one, or the called one.
    pub process: String,
    /// Mean over the slowest.
    pub slow: u64,
    /// Mean over the others.
    pub rest: u64,
    /// Share of the difference of the front's latency, in per cent.
    pub explains: f64,
    /// The part in words.
    pub text: String,
    #[serde(skip)]
    target: Option<usize>,
}

impl Part {
    /// Names the part, without numbers.
    pub fn describe(&self) -> String {
        match self.kind {
            PartKind::Own => format!("in {} itself", self.process),
            PartKind::Called => format!("in {}", self.process),
            PartKind::Transit => format!("in transit to {}", self.process),
            PartKind::Unrecorded => format!("in calls to {}, not recorded", self.process),
        }
    }
}

/// Sums of both groups, the slowest first.
type Sums = [u64; 2];
/// Requests of a process: whether each belongs to the slowest, and the time from its start for
/// which its caller waits for nothing else.
type Groups = Vec<(u32, bool, u64)>;
/// Kind of a part, and index of the process or of the label of an unrecorded one.
type PartKey = (PartKind, usize);

/// Compares the slowest requests of the front process with the others.
pub(super) fn compare(
    joined: &Joined<'_>,
    symbols: &mut [Symbols],
    share: f64,
    watch: &mut ProgressCallback<'_>,
) -> Result<JoinedTail, TraceError> {
    let front = joined.front;
    let requests = joined.roots();
    let mut latencies = Histogram::default();
    requests.iter().for_each(|index| latencies.record(joined.at(*index).latency()));
    let threshold = latencies.top_threshold(share);
    let whole = |index: &RequestIndex| {
        let one = joined.at(*index);
        (index.request, one.latency() >= threshold, one.end.saturating_sub(one.start))
    };
    let groups: Groups = requests.iter().map(whole).collect();
    let (mut counts, mut sums): (Sums, [u128; 2]) = ([0; 2], [0; 2]);
    for (index, is_slow, _) in &groups {
        let group = usize::from(!is_slow);
        counts[group] += 1;
        sums[group] += u128::from(joined.processes[front].requests[*index as usize].latency());
    }
    let mean = |group: usize| (sums[group] / u128::from(counts[group].max(1))) as u64;
    let mut tail = JoinedTail {
        front: joined.names[front].clone(),
        requests: counts[0] + counts[1],
        slow: counts[0],
        threshold,
        slow_mean: mean(0),
        rest_mean: mean(1),
        steps: Vec::new(),
        tail: None,
    };
    let (mut process, mut groups) = (front, groups);
    let difference = tail.slow_mean.saturating_sub(tail.rest_mean);
    loop {
        let (step, mut called) = step(joined, process, &groups, counts, difference);
        let next = step.parts.first().filter(|part| part.kind == PartKind::Called).and_then(|part| part.target);
        tail.steps.push(step);
        let Some(next) = next.filter(|_| tail.steps.len() < STEPS_MAX && difference > 0) else { break };
        (process, groups) = (next, called.remove(&next).unwrap_or_default());
    }
    tail.tail = Some(within(joined, process, &groups, &mut symbols[process], watch)?);
    Ok(tail)
}

/// Divides the time of a process's requests. Also returns the requests that they call.
fn step(
    joined: &Joined<'_>,
    process: usize,
    groups: &Groups,
    counts: Sums,
    difference: u64,
) -> (Step, BTreeMap<usize, Groups>) {
    let own = &joined.processes[process];
    let mut parts: BTreeMap<PartKey, Sums> = BTreeMap::new();
    let mut called: BTreeMap<usize, Groups> = BTreeMap::new();
    let mut requests = [0; 2];
    for (index, is_slow, nanos) in groups {
        let one = &own.requests[*index as usize];
        let group = usize::from(!is_slow);
        requests[group] += 1;
        let mut add = |key: PartKey, nanos: u64| {
            let sum = &mut parts.entry(key).or_default()[group];
            *sum = sum.saturating_add(nanos);
        };
        for piece in critical_path(one.start, one.start + nanos, &own.calls[one.calls()]) {
            let Some(call) = piece.call.map(|call| one.calls().start + call) else {
                add((PartKind::Own, process), piece.nanos);
                continue;
            };
            let Some(found) = joined.links.called(process, call) else {
                add((PartKind::Unrecorded, own.calls[call].peer as usize), piece.nanos);
                continue;
            };
            let target = found.process as usize;
            let inside = request(&joined.processes, found).latency().min(piece.nanos);
            add((PartKind::Called, target), inside);
            add((PartKind::Transit, target), piece.nanos - inside);
            called.entry(target).or_default().push((found.request, *is_slow, inside));
        }
    }
    let mut parts: Vec<Part> = parts
        .into_iter()
        .map(|(key, sums)| {
            part(joined, process, key, [0, 1].map(|group| sums[group] / counts[group].max(1)), difference)
        })
        .collect();
    parts.sort_by(|a, b| b.explains.total_cmp(&a.explains).then(b.slow.cmp(&a.slow)));
    (Step { process: joined.names[process].clone(), requests, parts }, called)
}

fn part(joined: &Joined<'_>, process: usize, key: PartKey, [slow, rest]: Sums, difference: u64) -> Part {
    let (kind, index) = key;
    let name = match kind {
        PartKind::Unrecorded => joined.peer(process, index as u32),
        _ => joined.names[index].clone(),
    };
    let explains = (slow as f64 - rest as f64) * 100.0 / (difference as f64).max(1.0);
    let target = (kind == PartKind::Called).then_some(index);
    let mut part = Part { kind, process: name, slow, rest, explains, text: String::new(), target };
    part.text = format!(
        "{:.0} % of the difference is {}: {} per request of {} in the slowest, {} in the others.",
        explains,
        part.describe(),
        format_nanos(slow),
        joined.names[joined.front],
        format_nanos(rest)
    );
    part
}

/// Compares the requests of one process by the groups of the front's requests to which they
/// belong.
fn within(
    joined: &Joined<'_>,
    process: usize,
    groups: &Groups,
    symbols: &mut Symbols,
    watch: &mut ProgressCallback<'_>,
) -> Result<Tail, TraceError> {
    let mut by_request: Map<(u64, u64, u64), bool> = Map::default();
    for (index, is_slow, _) in groups {
        let one = joined.at(RequestIndex { process: process as u32, request: *index });
        *by_request.entry((one.id, one.start, one.end)).or_default() |= is_slow;
    }
    let trace = &joined.traces[process];
    compare_groups(
        trace,
        symbols,
        &Selection::Marked,
        |request| by_request.get(&(request.id, request.start, request.end)).copied(),
        watch,
    )
}
