//! The timeline of one request across threads: activities of its threads, their waits, the holders and their activities
//! meanwhile, and the times off the CPU.

use std::collections::{BTreeMap, HashMap};

use super::activity::{Activity, Interval, nest};
use super::breakdown::{Cause, add_causes};
use super::clock_gaps::ClockGaps;
use super::follow::ThreadHistory;
use super::locks::{Hold, Holds};
use super::requests::Request;
use super::select::{Selection, Selector};
use crate::format::event::OffCpu;
use crate::format::{Event, EventKind, ObjectKind};
use crate::hash::Map;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Events of one timeline that are kept.
const EVENTS: usize = 1 << 20;
/// How far before the request threads are looked at, to know what they were at when it began.
const LOOKBACK: u64 = 20_000_000;
/// How many holders wait for each other in a row, at most.
const CHAIN: usize = 4;
/// Bars that are drawn; of more, the longest.
const BARS: usize = 100_000;
/// Waits that are looked at.
const WAITS: usize = 2000;

/// Which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestChoice {
    /// The slowest of all.
    Slowest,
    /// The slowest with this id.
    Id(u64),
}

/// A bar of a timeline. Times in nanoseconds since the request began.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bar {
    /// From when; 0 at the earliest.
    pub start: u64,
    /// Until when.
    pub end: u64,
    /// How deep it stands in its row.
    pub depth: usize,
    /// Kind of the bar.
    pub look: BarKind,
    /// The function, or what was waited for.
    pub name: String,
    /// More: lines, the caller, how long in all.
    pub detail: String,
}

/// Meaning of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BarKind {
    /// A call of a function.
    Call,
    /// A wait.
    Wait,
    /// A lock was held that the request waited for.
    Held,
    /// Off the CPU, blocked.
    Blocked,
    /// Off the CPU, though it could run.
    Descheduled,
    /// In a queue.
    Queued,
}

/// A thread in a timeline.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ThreadRow {
    /// The thread.
    pub thread: String,
    /// Whether it worked on the request; otherwise it held what the request waited for.
    pub own: bool,
    /// Activities of the thread, sorted by start.
    pub bars: Vec<Bar>,
}

/// A wait, and its holders.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct WaitDetail {
    /// From when, since the request began.
    pub start: u64,
    /// Until when.
    pub end: u64,
    /// The thread that waited.
    pub thread: String,
    /// Object waited for.
    pub object: String,
    /// Where: function, file and line.
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
    /// How long it stood in the way.
    pub nanos: u64,
    /// Activities of the holder meanwhile, the longest first.
    pub doing: Vec<(String, u64)>,
}

/// A request's timeline. Spans in nanoseconds.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Timeline {
    /// The request's id.
    pub id: u64,
    /// When it began, since the beginning of the trace.
    pub start: u64,
    /// How long it took.
    pub latency: u64,
    /// How many requests have this id.
    pub same_id: u64,
    /// Its threads first, then those that held what it waited for.
    pub rows: Vec<ThreadRow>,
    /// The waits with their holders.
    pub waits: Vec<WaitDetail>,
    /// Where the time went, the largest first.
    pub causes: Vec<(String, u64)>,
    /// Whether there was too much to show all of it.
    pub cut: bool,
    /// Whether the trace has scheduler events of this time.
    pub scheduler: bool,
}

/// The timeline of a request; `None` if there is no such.
///
/// # Errors
/// When the trace can't be read any more, or the watcher stops it.
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
    let scene = RequestWindow::gather(trace, &request, watch)?;
    Ok(Some(scene.drawn(trace, symbols, &request, same_id)))
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
        let unsure = ClockGaps::from_trace(trace);
        let mut pasts: HashMap<u32, ThreadHistory> = HashMap::new();
        let (mut holds, mut kinds) = (Holds::default(), HashMap::new());
        let mut scheduler = false;
        for event in &events {
            let thread = event.thread;
            let past = pasts.entry(thread).or_default();
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
                EventKind::Released { lock, .. } => holds.released(lock, thread, event.time),
                EventKind::SwitchedIn { .. } => {
                    scheduler = true;
                    if past.off_cpu().is_none() && past.intervals.is_empty() {
                        // It was off before the first that was read.
                        let off = EventKind::SwitchedOut { cpu: 0, next: 0, reason: OffCpu::Blocked };
                        past.add_event(&Event { time: from, thread, kind: off }, &unsure);
                    }
                }
                EventKind::SwitchedOut { .. } => scheduler = true,
                _ => {}
            }
            past.add_event(event, &unsure);
        }
        let mut threads: HashMap<u32, Vec<Interval>> = HashMap::new();
        for (thread, past) in pasts {
            let mut intervals: Vec<Interval> = past.intervals.iter().copied().collect();
            if let Some((start, why)) = past.off_cpu() {
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

    fn drawn(self, trace: &Trace, symbols: &mut Symbols, request: &Request, same_id: u64) -> Timeline {
        let mut causes: Map<Cause, u64> = Map::default();
        let mut rows: BTreeMap<(bool, u64, u32), ThreadRow> = BTreeMap::new();
        // Pieces of threads' time that are to be shown: thread, from, until, and how far down the chain of holders.
        let mut pieces: Vec<(u32, u64, u64, usize)> = Vec::new();
        for work in &request.work {
            add_causes(self.between(work.thread, work.start, work.end), work.start, work.end, &mut causes);
            pieces.push((work.thread, work.start, work.end, 0));
        }
        for (queue, from, to) in &request.queued {
            *causes.entry(Cause::Queued { queue: *queue }).or_default() += to - from;
        }
        let own: Vec<u32> = request.work.iter().map(|work| work.thread).collect();
        let (mut waits, mut next, mut room, mut cut) = (Vec::new(), 0, BARS, self.truncated || request.truncated);
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
            if intervals.len() > room {
                intervals.sort_by_key(|interval| std::cmp::Reverse(interval.end - interval.start));
                intervals.truncate(room);
                intervals.sort_by_key(|interval| interval.recorded_at);
                cut = true;
            }
            room -= intervals.len();
            row.bars.extend(bars(symbols, intervals, from, to, request));
            for interval in self.between(thread, from, to) {
                let Activity::Wait { object, lock, site } = interval.activity else { continue };
                let (start, end) = (interval.start.max(from), interval.end.min(to));
                if depth >= CHAIN || waits.len() >= WAITS {
                    continue;
                }
                let mut story = WaitDetail {
                    start: start - request.start,
                    end: end - request.start,
                    thread: trace.thread_name(thread),
                    object: format!("{} {lock:#x}", object.name()),
                    place: describe_site(symbols, site, end),
                    holders: Vec::new(),
                };
                for hold in self.holds.between(lock, thread, start, end) {
                    story.holders.push(self.holder(trace, symbols, &hold));
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
                waits.push(story);
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
            same_id,
            rows: merged(rows, request),
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

/// Bars of a thread between two times, one for each interval.
fn bars(symbols: &mut Symbols, mut intervals: Vec<Interval>, from: u64, to: u64, request: &Request) -> Vec<Bar> {
    nest(&mut intervals);
    // Calls first: how deep each is in the others.
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
            // Below the calls around it, and those that seem to begin within it.
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
        Activity::Off(OffCpu::Runnable) => BarKind::Descheduled,
    }
}

fn described(symbols: &mut Symbols, interval: &Interval) -> (String, String) {
    match interval.activity {
        Activity::Call { function, caller } => {
            let place = symbols.location(function, interval.end);
            let from = if caller == 0 {
                String::new()
            } else {
                format!(", called in {}", symbols.caller(caller, interval.end).describe())
            };
            (
                place.function(),
                format!("{} in all{from}", crate::span::format_nanos(interval.end.saturating_sub(interval.start))),
            )
        }
        Activity::Wait { object, lock, site } => (
            format!("waits for the {}", object.name()),
            format!("{lock:#x}, {}", describe_site(symbols, site, interval.end)),
        ),
        Activity::Off(OffCpu::Blocked) => ("off the CPU, blocked".into(), String::new()),
        Activity::Off(OffCpu::Runnable) => ("off the CPU, though it could run".into(), String::new()),
    }
}

fn describe_site(symbols: &mut Symbols, site: u64, time: u64) -> String {
    if site == 0 { "an unknown place".into() } else { symbols.site(site, time).describe() }
}

/// Merges the rows of each thread into one, its bars sorted; queues have a row of their own.
fn merged(rows: BTreeMap<(bool, u64, u32), ThreadRow>, request: &Request) -> Vec<ThreadRow> {
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
            name: "in a queue".into(),
            detail: if *queue == 0 { String::new() } else { format!("{queue:#x}") },
        });
        rows.insert(0, ThreadRow { thread: "queue".into(), own: true, bars: bars.collect() });
    }
    for row in &mut rows {
        row.bars.sort_by_key(|bar| (bar.start, bar.depth, u64::MAX - bar.end));
        row.bars.dedup();
    }
    rows
}
