//! One request over all processes: as a tree, and as a timeline by the clock of the front process.
//!
//! Does not render.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Joined;
use super::links::RequestIndex;
use super::path::critical_path;
use crate::analysis::requests::Request;
use crate::analysis::select::{Selection, Selector};
use crate::analysis::timeline::{Bar, BarKind, ThreadRow, Timeline, WaitDetail, of_request};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, TraceError};

/// Limit of a tree's depth.
const DEPTH_MAX: usize = 32;
/// Limit of a tree's requests.
const NODES_MAX: usize = 1000;
/// Limit of requests with a timeline of their threads; of others only the duration is shown.
const TIMELINES_MAX: usize = 64;

/// A request of one process, with the requests that it causes in others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestNode {
    /// The process.
    pub process: String,
    /// The trace id, as 32 hexadecimal digits.
    pub trace: String,
    /// The request's id in its process.
    pub id: u64,
    /// The request's label, if it has one.
    pub label: Option<String>,
    /// Start by the clock of the front process, from the start of the first request, in
    /// nanoseconds.
    pub start: i64,
    /// Whether the start is known, and not only guessed from its caller's times.
    pub is_aligned: bool,
    /// Latency in nanoseconds.
    pub latency: u64,
    /// Time in nanoseconds from sending the call to its answer; `None` for the first request, and
    /// without an answer.
    pub call: Option<u64>,
    /// Time in nanoseconds in the process itself.
    pub own: u64,
    /// Calls to processes without a recording of the request: peer, and duration in nanoseconds.
    pub unrecorded: Vec<(String, u64)>,
    /// Requests that it causes.
    pub children: Vec<RequestNode>,
    #[serde(skip)]
    index: RequestIndex,
}

impl RequestNode {
    /// Visits the request, then those that it causes, with their depth.
    pub fn each<'a>(&'a self, visit: &mut impl FnMut(&'a RequestNode, usize)) {
        self.each_below(0, visit);
    }

    fn each_below<'a>(&'a self, depth: usize, visit: &mut impl FnMut(&'a RequestNode, usize)) {
        visit(self, depth);
        self.children.iter().for_each(|child| child.each_below(depth + 1, visit));
    }
}

/// The timeline of a trace. Its rows are threads of all processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinedTimeline {
    /// The timeline; id and latency are those of the first request.
    pub timeline: Timeline,
    /// For each row the index of its process, and the process's name.
    pub processes: Vec<(usize, String)>,
}

/// Returns the tree of a trace, or that of the slowest request.
pub(super) fn tree(joined: &Joined<'_>, trace: Option<u128>) -> Option<RequestNode> {
    let roots = joined.roots();
    let wanted = roots.into_iter().filter(|index| trace.is_none_or(|trace| joined.at(*index).trace == trace));
    let root = wanted.max_by_key(|index| (joined.at(*index).latency(), std::cmp::Reverse(*index)))?;
    let mut room = NODES_MAX;
    Some(node(joined, root, None, joined.at(root).start, DEPTH_MAX, &mut room))
}

/// Sent and answered time of a call, by the caller's clock, and start of the caller by both clocks.
struct CallTimes {
    sent: u64,
    answered: Option<u64>,
    caller_start: u64,
    caller_offset: i64,
}

fn node(
    joined: &Joined<'_>,
    index: RequestIndex,
    caller: Option<CallTimes>,
    origin: u64,
    depth: usize,
    room: &mut usize,
) -> RequestNode {
    *room = room.saturating_sub(1);
    let (process, one) = (index.process as usize, joined.at(index));
    let own = &joined.processes[process];
    let call = caller.as_ref().and_then(|caller| Some(caller.answered?.saturating_sub(caller.sent)));
    let aligned = joined.clocks[process].to_front(one.start).map(|start| difference(start, origin));
    // Without a common clock: in the middle of the call.
    let guess = |caller: &CallTimes| {
        let spare = call.unwrap_or(0).saturating_sub(one.latency()) / 2;
        let spare = i64::try_from(spare).unwrap_or(i64::MAX);
        caller.caller_offset.saturating_add(difference(caller.sent, caller.caller_start)).saturating_add(spare)
    };
    let start = aligned.unwrap_or_else(|| caller.as_ref().map_or(0, guess));
    let path = critical_path(one.start, one.end, &own.calls[one.calls()]);
    let mut found = RequestNode {
        process: joined.names[process].clone(),
        trace: format!("{:032x}", one.trace),
        id: one.id,
        label: joined.traces[process].label(one.label).map(String::from),
        start,
        is_aligned: aligned.is_some(),
        latency: one.latency(),
        call,
        own: path.iter().filter(|piece| piece.call.is_none()).map(|piece| piece.nanos).sum(),
        unrecorded: Vec::new(),
        children: Vec::new(),
        index,
    };
    for call in one.calls() {
        let times = own.calls[call];
        match joined.links.called(process, call) {
            Some(child) if depth > 0 && *room > 0 => {
                let (sent, answered) = (times.sent, times.answered);
                let caller = CallTimes { sent, answered, caller_start: one.start, caller_offset: start };
                found.children.push(node(joined, child, Some(caller), origin, depth - 1, room));
            }
            Some(_) => {}
            None if found.unrecorded.len() < NODES_MAX => {
                let until = times.answered.unwrap_or(one.end);
                found.unrecorded.push((joined.peer(process, times.peer), until.saturating_sub(times.sent)));
            }
            None => {}
        }
    }
    found
}

fn difference(time: u64, from: u64) -> i64 {
    (i128::from(time) - i128::from(from)).clamp(i128::from(i64::MIN / 4), i128::from(i64::MAX / 4)) as i64
}

/// Returns the timeline of a tree.
pub(super) fn timeline(
    joined: &Joined<'_>,
    tree: &RequestNode,
    symbols: &mut [Symbols],
    watch: &mut ProgressCallback<'_>,
) -> Result<JoinedTimeline, TraceError> {
    let mut nodes: Vec<&RequestNode> = Vec::new();
    tree.each(&mut |node, _| nodes.push(node));
    let mut by_process: BTreeMap<u32, Vec<&RequestNode>> = BTreeMap::new();
    for node in nodes.iter().take(TIMELINES_MAX) {
        by_process.entry(node.index.process).or_default().push(node);
    }
    let mut details: BTreeMap<RequestIndex, Timeline> = BTreeMap::new();
    for (process, nodes) in by_process {
        let (trace, symbols) = (&joined.traces[process as usize], &mut symbols[process as usize]);
        let mut requests: Vec<(RequestIndex, Request)> = Vec::new();
        Selector::all(trace, &Selection::Marked, watch, |request| {
            if let Some(node) = nodes.iter().find(|node| joined.at(node.index).is(&request)) {
                requests.push((node.index, request));
            }
        })?;
        for (index, request) in requests {
            details.insert(index, of_request(trace, symbols, &request, watch)?);
        }
    }
    let mut merged = Merged::new(tree);
    for node in &nodes {
        merged.add(joined, node, details.remove(&node.index));
    }
    Ok(merged.finish(nodes.len() > TIMELINES_MAX))
}

/// A joined timeline in progress.
struct Merged {
    timeline: Timeline,
    processes: Vec<(usize, String)>,
    causes: BTreeMap<String, u64>,
}

impl Merged {
    fn new(tree: &RequestNode) -> Merged {
        let (id, latency) = (tree.id, tree.latency);
        let timeline = Timeline {
            id,
            start: 0,
            latency,
            same_id: 1,
            rows: Vec::new(),
            waits: Vec::new(),
            causes: Vec::new(),
            cut: false,
            scheduler: true,
        };
        Merged { timeline, processes: Vec::new(), causes: BTreeMap::new() }
    }

    /// Shifts a time of a request to the first request's, and cuts it to that one's latency.
    fn shift(&self, time: u64, by: i64) -> u64 {
        let shifted = i64::try_from(time).unwrap_or(i64::MAX / 4).min(i64::MAX / 4).saturating_add(by);
        u64::try_from(shifted.max(0)).unwrap_or(0).min(self.timeline.latency)
    }

    fn add(&mut self, joined: &Joined<'_>, node: &RequestNode, detail: Option<Timeline>) {
        let process = node.index.process as usize;
        let name = &node.process;
        self.cause(format!("in {name} itself"), node.own);
        for (peer, nanos) in &node.unrecorded {
            self.cause(format!("in calls to {peer}, not recorded"), *nanos);
        }
        if let Some(call) = node.call {
            self.cause(format!("in transit to {name}"), call.saturating_sub(node.latency));
        }
        let label = node.label.as_deref().map(|label| format!(" {label}")).unwrap_or_default();
        let mut bars =
            vec![self.bar(node.start, 0, node.latency, 1, BarKind::Call, format!("request {}{label}", node.id))];
        let one = joined.at(node.index);
        let own = &joined.processes[process];
        for call in one.calls().take(NODES_MAX) {
            let times = own.calls[call];
            let peer = match joined.links.called(process, call) {
                Some(found) => joined.names[found.process as usize].clone(),
                None => joined.peer(process, times.peer),
            };
            let (from, to) = (times.sent.saturating_sub(one.start), times.answered.unwrap_or(one.end));
            let to = to.saturating_sub(one.start);
            bars.push(self.bar(node.start, from, to, 2, BarKind::Queued, format!("call to {peer}")));
        }
        self.row(process, name, ThreadRow { thread: format!("{name}: requests"), own: true, bars });
        let Some(detail) = detail else { return };
        for row in detail.rows {
            let shifted = row.bars.into_iter().map(|bar| Bar {
                start: self.shift(bar.start, node.start),
                end: self.shift(bar.end, node.start),
                ..bar
            });
            let bars = shifted.filter(|bar| bar.end > bar.start).collect();
            self.row(process, name, ThreadRow { thread: format!("{name}: {}", row.thread), own: row.own, bars });
        }
        for wait in detail.waits {
            let (start, end) = (self.shift(wait.start, node.start), self.shift(wait.end, node.start));
            let thread = format!("{name}: {}", wait.thread);
            self.timeline.waits.push(WaitDetail { start, end, thread, ..wait });
        }
        self.timeline.cut |= detail.cut;
        self.timeline.scheduler &= detail.scheduler;
    }

    fn cause(&mut self, name: String, nanos: u64) {
        let sum = self.causes.entry(name).or_default();
        *sum = sum.saturating_add(nanos);
    }

    fn bar(&self, by: i64, start: u64, end: u64, depth: usize, look: BarKind, name: String) -> Bar {
        Bar { start: self.shift(start, by), end: self.shift(end, by), depth, look, name, detail: String::new() }
    }

    /// Adds bars to the row of a thread.
    fn row(&mut self, process: usize, name: &str, row: ThreadRow) {
        let known = self.timeline.rows.iter_mut().zip(&self.processes);
        let mut known = known.filter(|(other, of)| of.0 == process && other.thread == row.thread);
        match known.next() {
            Some((other, _)) => {
                other.bars.extend(row.bars);
                other.own |= row.own;
            }
            None => {
                self.timeline.rows.push(row);
                self.processes.push((process, name.to_string()));
            }
        }
    }

    fn finish(mut self, is_cut: bool) -> JoinedTimeline {
        self.timeline.cut |= is_cut;
        for row in &mut self.timeline.rows {
            row.bars.sort_by_key(|bar| (bar.start, bar.depth, u64::MAX - bar.end));
        }
        let mut causes: Vec<(String, u64)> = self.causes.into_iter().filter(|(_, nanos)| *nanos > 0).collect();
        causes.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
        self.timeline.causes = causes;
        JoinedTimeline { timeline: self.timeline, processes: self.processes }
    }
}
