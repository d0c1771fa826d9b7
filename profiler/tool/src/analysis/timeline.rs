//! The timeline of one request across threads.
//!
//! It shows the activities and waits of the request's threads, the lock holders with their
//! activities meanwhile, and the times off the CPU.

use std::collections::{BTreeMap, HashMap};

use super::activity::{Activity, Interval, nest};
use super::breakdown::{Cause, add_causes};
use super::clock_gaps::ClockGaps;
use super::locks::{Hold, Holds};
use super::requests::Request;
use super::select::{Selection, Selector};
use super::thread_history::ThreadHistory;
use crate::format::event::OffCpu;
use crate::format::{Event, EventKind, ObjectKind};
use crate::hash::Map;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Limit of events of one timeline.
const EVENTS: usize = 1 << 20;
/// Time in ns before the request from which events are read, to know its threads' activities at its
/// start.
const LOOKBACK: u64 = 20_000_000;
/// Greatest length of a chain of holders that wait for each other.
const CHAIN: usize = 4;
/// Limit of bars; beyond it the longest are shown.
const BARS: usize = 100_000;
/// Limit of waits that are examined.
const WAITS: usize = 2000;

/// Choice of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestChoice {
    /// The slowest of all requests.
    Slowest,
    /// The slowest request with this id.
    Id(u64),
}

/// A bar of a timeline. Times in nanoseconds from the start of the request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bar {
    /// Start; at least 0.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Depth in the row.
    pub depth: usize,
    /// Kind of the bar.
    pub look: BarKind,
    /// The function, or the object of the wait.
    pub name: String,
    /// Details: lines, the caller, the total duration.
    pub detail: String,
}

/// Kind of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BarKind {
    /// A call of a function.
    Call,
    /// A wait.
    Wait,
    /// A hold of a lock for which the request waited.
    Held,
    /// Off the CPU, blocked.
    Blocked,
    /// Off the CPU although it could run.
    Descheduled,
    /// In a queue.
    Queued,
}

/// A thread in a timeline.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ThreadRow {
    /// The thread.
    pub thread: String,
    /// The thread worked on the request; otherwise it held a lock for which the request waited.
    pub own: bool,
    /// Activities of the thread, sorted by start.
    pub bars: Vec<Bar>,
}

/// A wait, and its holders.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct WaitDetail {
    /// Start of the wait, from the start of the request.
    pub start: u64,
    /// End of the wait.
    pub end: u64,
    /// The thread that waited.
    pub thread: String,
    /// Object of the wait.
    pub object: String,
    /// Location of the wait: function, file and line.
    pub place: String,
    /// Holders of the lock, in order.
    pub holders: Vec<WaitHolder>,
}

/// Holder of a lock during a wait.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct WaitHolder {
    /// The thread.
    pub thread: String,
    /// The function that took the lock, and the line.
    pub place: String,
    /// Time for which the hold delayed the wait.
    pub nanos: u64,
    /// The holder's activities meanwhile, the longest first.
    pub doing: Vec<(String, u64)>,
}

/// A request's timeline. Spans in nanoseconds.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Timeline {
    /// The request's id.
    pub id: u64,
    /// Start of the request, from the start of the trace.
    pub start: u64,
    /// The request's latency.
    pub latency: u64,
    /// Number of requests with this id.
    pub same_id: u64,
    /// The request's threads first, then threads that held its locks.
    pub rows: Vec<ThreadRow>,
    /// The waits with their holders.
    pub waits: Vec<WaitDetail>,
    /// Causes of the spent time, the largest first.
    pub causes: Vec<(String, u64)>,
    /// Some bars or events are omitted, because there are too many.
    pub cut: bool,
    /// The trace has scheduler events of this time.
    pub scheduler: bool,
}

/// Returns the timeline of a request; `None` if there is no such request.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn timeline(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    which: RequestChoice,
    watch: &mut ProgressCallback<'_>,
) -> Result<Option<Timeline>, TraceError> {
    let (mut found, mut same_id): (Option<Request>, u64) = (None, 0);
    Selector::all(trace, selection, watch, |request| {
        if matches!(which, RequestChoice::Id(id) if id != request.id) {
            return;
        }
        same_id += u64::from(which != RequestChoice::Slowest);
        if found.as_ref().is_none_or(|slowest| request.latency() > slowest.latency()) {
            found = Some(request);
        }
    })?;
    let Some(request) = found else { return Ok(None) };
    Ok(Some(Timeline { same_id, ..of_request(trace, symbols, &request, watch)? }))
}

/// Returns the timeline of a request of the trace.
///
/// # Errors
/// See [`timeline`].
pub fn of_request(
    trace: &Trace,
    symbols: &mut Symbols,
    request: &Request,
    watch: &mut ProgressCallback<'_>,
) -> Result<Timeline, TraceError> {
    Ok(RequestWindow::gather(trace, request, watch)?.drawn(trace, symbols, request))
}

/// Activities of all threads around a request.
struct RequestWindow {
    threads: HashMap<u32, Vec<Interval>>,
    holds: Holds,
    kinds: HashMap<u64, ObjectKind>,
    truncated: bool,
    scheduler: bool,
}

impl RequestWindow {
    fn gather(trace: &Trace, request: &Request, watch: &mut ProgressCallback<'_>) -> Result<RequestWindow, TraceError> {
        let from = request.start.saturating_sub(LOOKBACK);
        let mut events: Vec<Event> = Vec::new();
        let mut cut = false;
        trace.overlapping(from, request.end, watch, |event| {
            if event.time >= from && crate::trace::start_of(event) <= request.end {
                if events.len() < EVENTS { events.push(*event) } else { cut = true }
            }
        })?;
        events.sort_by_key(|event| event.time);
        let gaps = ClockGaps::from_trace(trace);
        let mut histories: HashMap<u32, ThreadHistory> = HashMap::new();
        let (mut holds, mut kinds) = (Holds::default(), HashMap::new());
        let mut scheduler = false;
        for event in &events {
            let thread = event.thread;
            let history = histories.entry(thread).or_default();
            match event.kind {
                EventKind::Held { object, lock, site, hold, .. } => {
                    kinds.insert(lock, object);
                    if event.time >= request.start {
                        let start = event.time.saturating_sub(hold);
                        holds.add(lock, Hold { thread, site, start, end: event.time });
                    }
                }
                EventKind::Acquired { object, lock, site, .. } => {
                    kinds.insert(lock, object);
                    holds.acquired(lock, thread, site, event.time);
                }
                EventKind::Released { lock, site, .. } => holds.released(lock, thread, site, event.time),
                EventKind::SwitchedIn { .. } => {
                    scheduler = true;
                    if history.off_cpu().is_none() && history.intervals.is_empty() {
                        // The thread was off the CPU before the first event that was read.
                        let off = EventKind::SwitchedOut { cpu: 0, next: 0, reason: OffCpu::Blocked };
                        history.add_event(&Event { time: from, thread, kind: off }, &gaps);
                    }
                }
                EventKind::SwitchedOut { .. } => scheduler = true,
                _ => {}
            }
            history.add_event(event, &gaps);
        }
        let mut threads: HashMap<u32, Vec<Interval>> = HashMap::new();
        for (thread, history) in histories {
            let mut intervals: Vec<Interval> = history.intervals.iter().copied().collect();
            if let Some((start, why)) = history.off_cpu() {
                intervals.push(Interval { start, end: u64::MAX, recorded_at: u64::MAX, activity: Activity::Off(why) });
            }
            intervals.retain(|interval| interval.end > request.start && interval.start < request.end);
            threads.insert(thread, intervals);
        }
        Ok(RequestWindow { threads, holds, kinds, truncated: cut, scheduler })
    }

    fn between(&self, thread: u32, from: u64, to: u64) -> Vec<Interval> {
        let all = self.threads.get(&thread).into_iter().flatten();
        all.filter(|interval| interval.end > from && interval.start < to).copied().collect()
    }

    fn drawn(self, trace: &Trace, symbols: &mut Symbols, request: &Request) -> Timeline {
        let mut causes: Map<Cause, u64> = Map::default();
        let mut rows: BTreeMap<(bool, u64, u32), ThreadRow> = BTreeMap::new();
        // Pieces of threads' time to show: thread, start, end, and depth in the chain of holders.
        let mut pieces: Vec<(u32, u64, u64, usize)> = Vec::new();
        for work in &request.work {
            add_causes(self.between(work.thread, work.start, work.end), work.start, work.end, &mut causes);
            pieces.push((work.thread, work.start, work.end, 0));
        }
        for (queue, from, to) in &request.queued {
            *causes.entry(Cause::Queued { queue: *queue }).or_default() += to - from;
        }
        let own: Vec<u32> = request.work.iter().map(|work| work.thread).collect();
        let (mut waits, mut next, mut bars_left, mut cut) = (Vec::new(), 0, BARS, self.truncated || request.truncated);
        while let Some((thread, from, to, depth)) = pieces.get(next).copied() {
            next += 1;
            let is_own = own.contains(&thread);
            let first = request.work.iter().filter(|work| work.thread == thread).map(|work| work.start).min();
            let row = rows.entry((!is_own, first.unwrap_or(from), thread)).or_insert_with(|| ThreadRow {
                thread: trace.thread_name(thread),
                own: is_own,
                bars: Vec::new(),
            });
            let mut intervals = self.between(thread, from, to);
            if intervals.len() > bars_left {
                intervals.sort_by_key(|interval| std::cmp::Reverse(interval.end - interval.start));
                intervals.truncate(bars_left);
                intervals.sort_by_key(|interval| interval.recorded_at);
                cut = true;
            }
            bars_left -= intervals.len();
            row.bars.extend(bars(symbols, intervals, from, to, request));
            for interval in self.between(thread, from, to) {
                let Activity::Wait { object, lock, site } = interval.activity else { continue };
                let (start, end) = (interval.start.max(from), interval.end.min(to));
                if depth >= CHAIN || waits.len() >= WAITS {
                    continue;
                }
                let mut wait_detail = WaitDetail {
                    start: start - request.start,
                    end: end - request.start,
                    thread: trace.thread_name(thread),
                    object: format!("{} {lock:#x}", object.name()),
                    place: describe_site(symbols, site, end),
                    holders: Vec::new(),
                };
                for hold in self.holds.between(lock, thread, start, end) {
                    wait_detail.holders.push(self.holder(trace, symbols, &hold));
                    let shown = pieces
                        .iter()
                        .any(|(other, from, to, _)| (*other, *from, *to) == (hold.thread, hold.start, hold.end));
                    if !shown && pieces.len() < WAITS {
                        pieces.push((hold.thread, hold.start, hold.end, depth + 1));
                    }
                    let kind = self.kinds.get(&lock).copied().unwrap_or(object);
                    let place = describe_site(symbols, hold.site, end);
                    let bar = Bar {
                        start: hold.start - request.start,
                        end: hold.end - request.start,
                        depth: 0,
                        look: BarKind::Held,
                        name: format!("holds the {}, taken in {place}", kind.name()),
                        detail: format!("{lock:#x}"),
                    };
                    let thread = hold.thread;
                    let is_own = own.contains(&thread);
                    let first = request.work.iter().filter(|work| work.thread == thread).map(|work| work.start).min();
                    let key = (!is_own, first.unwrap_or(hold.start), thread);
                    let known = rows.keys().find(|(_, _, other)| *other == thread).copied().unwrap_or(key);
                    let row = rows.entry(known).or_insert_with(|| ThreadRow {
                        thread: trace.thread_name(thread),
                        own: is_own,
                        bars: Vec::new(),
                    });
                    if !row.bars.contains(&bar) {
                        row.bars.push(bar);
                    }
                }
                waits.push(wait_detail);
            }
        }
        let mut named: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, nanos) in causes {
            *named.entry(cause.describe(symbols, request.end)).or_default() += nanos;
        }
        let mut causes: Vec<(String, u64)> = named.into_iter().collect();
        causes.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
        Timeline {
            id: request.id,
            start: request.start.saturating_sub(trace.counts().first),
            latency: request.end.saturating_sub(request.start),
            same_id: 1,
            rows: merged(rows, request, symbols),
            waits,
            causes,
            cut,
            scheduler: self.scheduler,
        }
    }

    fn holder(&self, trace: &Trace, symbols: &mut Symbols, hold: &Hold) -> WaitHolder {
        let mut causes = Map::default();
        add_causes(self.between(hold.thread, hold.start, hold.end), hold.start, hold.end, &mut causes);
        let mut named: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, nanos) in causes {
            *named.entry(cause.describe(symbols, hold.end)).or_default() += nanos;
        }
        let mut doing: Vec<(String, u64)> = named.into_iter().collect();
        doing.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
        WaitHolder {
            thread: trace.thread_name(hold.thread),
            place: describe_site(symbols, hold.site, hold.end),
            nanos: hold.end - hold.start,
            doing,
        }
    }
}

/// Creates the bars of a thread between two times, one for each interval.
fn bars(symbols: &mut Symbols, mut intervals: Vec<Interval>, from: u64, to: u64, request: &Request) -> Vec<Bar> {
    nest(&mut intervals);
    // First pass: the depth of each call.
    let mut calls: Vec<(u64, usize)> = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    for interval in intervals.iter().filter(|interval| !interval.activity.is_leaf()) {
        ends.retain(|end| *end > interval.start);
        ends.push(interval.end);
        calls.push((interval.start, ends.len()));
    }
    let mut bars = Vec::new();
    let (mut next, mut wait_ends) = (0, 0);
    ends.clear();
    for interval in intervals {
        ends.retain(|end| *end > interval.start);
        let depth = if interval.activity.is_leaf() {
            // Below the surrounding calls, and below calls that seem to begin within it.
            let within = calls[next..].iter().take_while(|(start, _)| *start < interval.end).map(|(_, depth)| *depth);
            let in_wait = usize::from(interval.start < wait_ends);
            if matches!(interval.activity, Activity::Wait { .. }) {
                wait_ends = interval.end;
            }
            within.take(1000).max().unwrap_or(0).max(ends.len()) + 1 + in_wait
        } else {
            ends.push(interval.end);
            next += 1;
            ends.len()
        };
        let (name, detail) = described(symbols, &interval);
        bars.push(Bar {
            start: interval.start.max(from) - request.start,
            end: interval.end.min(to) - request.start,
            depth,
            look: bar_kind(interval.activity),
            name,
            detail,
        });
    }
    bars
}

fn bar_kind(activity: Activity) -> BarKind {
    match activity {
        Activity::Call { .. } => BarKind::Call,
        Activity::Wait { .. } => BarKind::Wait,
        Activity::Off(OffCpu::Blocked) => BarKind::Blocked,
        Activity::Off(OffCpu::Runnable | OffCpu::Stopped) => BarKind::Descheduled,
    }
}

fn described(symbols: &mut Symbols, interval: &Interval) -> (String, String) {
    match interval.activity {
        Activity::Call { function, caller } => {
            let location = symbols.location(function, interval.end);
            let from = if caller == 0 {
                String::new()
            } else {
                format!(", called in {}", symbols.caller(caller, interval.end).describe())
            };
            (
                location.function(),
                format!("{} in all{from}", crate::span::format_nanos(interval.end.saturating_sub(interval.start))),
            )
        }
        Activity::Wait { object, lock, site } => (
            format!("waits for the {}", object.name()),
            format!("{lock:#x}, {}", describe_site(symbols, site, interval.end)),
        ),
        Activity::Off(OffCpu::Blocked) => ("off the CPU, blocked".into(), String::new()),
        Activity::Off(OffCpu::Runnable) => ("off the CPU, though it could run".into(), String::new()),
        Activity::Off(OffCpu::Stopped) => ("stopped by a signal or a debugger".into(), String::new()),
    }
}

fn describe_site(symbols: &mut Symbols, site: u64, time: u64) -> String {
    if site == 0 { "an unknown place".into() } else { symbols.site(site, time).describe() }
}

/// Merges the rows of each thread into one, with sorted bars; queues have a separate row.
fn merged(rows: BTreeMap<(bool, u64, u32), ThreadRow>, request: &Request, symbols: &mut Symbols) -> Vec<ThreadRow> {
    let mut merged: Vec<(u32, ThreadRow)> = Vec::new();
    for ((_, _, thread), row) in rows {
        match merged.iter_mut().find(|(known, _)| *known == thread) {
            Some((_, known)) => known.bars.extend(row.bars),
            None => merged.push((thread, row)),
        }
    }
    let mut rows: Vec<ThreadRow> = merged.into_iter().map(|(_, row)| row).collect();
    if !request.queued.is_empty() {
        let bars = request.queued.iter().map(|(queue, from, to)| Bar {
            start: from - request.start,
            end: to - request.start,
            depth: 1,
            look: BarKind::Queued,
            name: symbols.queue(*queue, request.end),
            detail: String::new(),
        });
        rows.insert(0, ThreadRow { thread: "queue".into(), own: true, bars: bars.collect() });
    }
    for row in &mut rows {
        row.bars.sort_by_key(|bar| (bar.start, bar.depth, u64::MAX - bar.end));
        row.bars.dedup();
    }
    rows
}
