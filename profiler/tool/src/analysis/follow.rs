//! Follows a whole trace in the order of time.
//!
//! It remembers each thread's recent activities and each lock's recent holders. It reports each
//! request a moment after its end, when all related events have arrived.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::activity::{Activity, Interval, walk_stacks};
use super::breakdown::{self, Breakdown};
use super::clock_gaps::ClockGaps;
use super::helpers::{HelperWork, SHORTEST, Waits, waiting_in};
use super::idle_stacks::IdleStacks;
use super::locks::{Hold, Holds};
use super::requests::{NO_THREAD, Request, WorkSpan};
use super::select::{Selection, Selector};
use super::starved::{self, PollingFunctions};
use super::sums::Sums;
use super::thread_history::ThreadHistory;
use super::weights::RequestWeights;
use crate::format::event::OffCpu;
use crate::format::meta::Engine;
use crate::format::queue::Queue;
use crate::format::{Event, EventKind};
use crate::hash::{Map, Set};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Time in ns from a request's end to its analysis: the calls around it end a moment later.
const GRACE: u64 = 50_000;
/// Limit of remembered intervals in all: 40 MB.
const MOST: usize = 1 << 20;
/// Greatest time in ns from a thread's wait for work to the request's begin.
const WAKE_UP: u64 = 1_000_000;
/// Limit of remembered threads.
const THREADS: usize = 1 << 17;
/// Limit of functions whose names are looked up.
const FUNCTIONS: usize = 1 << 16;

/// The past of all threads and locks.
#[derive(Clone, Debug, Default)]
pub struct TraceHistory {
    threads: Map<u32, ThreadHistory>,
    holds: Holds,
    count: usize,
    /// Intervals that were recorded before this time may be discarded.
    forgotten: u64,
    clock_gaps: ClockGaps,
    /// Stacks in which threads wait for work, where the trace has the stacks of switches.
    idle: Option<IdleStacks>,
    /// Functions of threads that poll, once a future awaits something.
    polling: Option<PollingFunctions>,
    /// Threads by the kernel's id.
    by_tid: Map<u32, u32>,
}

impl TraceHistory {
    /// Creates an empty history of a trace.
    fn new(trace: &Trace) -> TraceHistory {
        let is_sampled = trace.header().engine == Engine::Samples;
        TraceHistory {
            clock_gaps: ClockGaps::from_trace(trace),
            idle: is_sampled.then(IdleStacks::default),
            by_tid: trace.threads().map(|thread| (thread.tid, thread.number)).collect(),
            ..TraceHistory::default()
        }
    }

    /// Learns where the request's thread waited for it, and those that took it over.
    fn learn_idle(&mut self, request: &Request, weight: u64) {
        let Some(idle) = &mut self.idle else { return };
        let waited = |work: &WorkSpan| {
            let (history, start) = (self.threads.get(&work.thread)?, work.start);
            let around = start.saturating_sub(WAKE_UP)..=start;
            // A request that arrived while its thread was held up by another one starts right after
            // that one's answer. Before a thread's first request the wait may be of one that the
            // recording did not see begin.
            let is_for_work = |span: (u64, u64)| around.contains(&span.1) && !history.is_of_work_before(span, start);
            history.has_worked_before(start).then(|| history.wait_before(is_for_work))
        };
        if let Some(before) = request.work.first().and_then(waited) {
            idle.learn(&before, weight);
        }
        for (former, work) in request.work.iter().zip(request.work.iter().skip(1)) {
            if let Some(before) = waited(work).filter(|_| work.thread != former.thread) {
                idle.learn_more(&before, weight);
            }
        }
        for work in request.worked() {
            if let Some(history) = self.threads.get_mut(&work.thread) {
                history.add_work(work.start, work.end);
            }
        }
    }

    /// Returns the request with some of its time in queues as time without a thread: that in which
    /// the thread that took it next waited for work. The request did not queue for that thread.
    fn with_events<'a>(&self, request: &'a Request) -> Cow<'a, Request> {
        let unknown = Queue::Unknown.to_event();
        if request.queued.iter().all(|(queue, ..)| *queue != unknown) {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        for (queue, from, to) in &mut request.queued {
            let Some(at) = request.work.iter().position(|work| work.start == *to).filter(|_| *queue == unknown) else {
                continue;
            };
            let thread = request.work[at].thread;
            let mut rested = *from;
            walk_stacks(&mut self.between(thread, *from, *to), *from, *to, |stack, _, end| {
                if self.is_idle(stack) {
                    rested = end;
                }
            });
            if rested > *from {
                request.work.insert(at, WorkSpan { thread: NO_THREAD, start: *from, end: rested });
                *from = rested;
            }
        }
        request.queued.retain(|(_, from, to)| from < to);
        Cow::Owned(request)
    }

    /// Returns the request with awaits that end where it could go on, but its runtime was starved.
    fn with_starved<'a>(&self, request: Cow<'a, Request>) -> Cow<'a, Request> {
        let Some(polling) = &self.polling else { return request };
        let starved_since = |(queue, from, to): &(u64, u64, u64)| {
            let is_await = matches!(Queue::from_event(*queue), Queue::Named(_) | Queue::Stack(_));
            let threads = || self.threads.iter().filter(|(_, history)| !history.serves_none());
            // Of a thread that never waits for work it is not known when it looks for events.
            if !is_await || threads().any(|(_, history)| !history.waits_for_work) {
                return None;
            }
            let from = (*from).max(to.saturating_sub(starved::WINDOW));
            polling.starved_since(threads().map(|(thread, _)| self.between(*thread, from, *to)), from, *to)
        };
        let since: Vec<Option<u64>> = request.queued.iter().map(starved_since).collect();
        if since.iter().all(Option::is_none) {
            return request;
        }
        let split = |((queue, from, to), since): (&(u64, u64, u64), Option<u64>)| {
            let since = since.unwrap_or(*to);
            [(*queue, *from, since), (Queue::Ready.to_event(), since, *to)]
        };
        let queued = request.queued.iter().zip(since).flat_map(split).filter(|(_, from, to)| from < to).collect();
        Cow::Owned(Request { queued, ..request.into_owned() })
    }

    /// Returns the request with a helper's work in place of the time in which its own threads
    /// waited for it.
    fn with_helper<'a>(&self, request: &'a Request) -> Cow<'a, Request> {
        if self.idle.is_none() || request.latency() < SHORTEST {
            return Cow::Borrowed(request);
        }
        let request = self.with_events(request);
        let (waits, wakers) = self.waits(&request);
        if !waits.are_long() {
            return request;
        }
        let mut busiest = HelperWork::default();
        for (thread, history) in &self.threads {
            let is_waker = wakers.contains(thread);
            if !is_waker && !self.may_help(history, &request) {
                continue;
            }
            // Where it waited before the request. A thread of a scheduler waits in several places.
            let before = waiting_in(&history.wait_before(|(from, _)| from < request.start));
            let is_rest = |stack: &[Activity]| {
                let function = waiting_in(stack);
                // A waker has worked: its only waits are within its work.
                let is_place = if before.is_none() { !is_waker } else { function == before };
                is_place || self.is_idle(stack) || function.is_some_and(|function| self.calls_wait(function))
            };
            let between = |from, to| self.between(*thread, from, to);
            busiest = busiest.busier(HelperWork::find(*thread, &waits, is_rest, between));
        }
        if busiest.explains(&waits) { Cow::Owned(busiest.within(&request)) } else { request }
    }

    /// Returns whether a thread that woke none of the request's could have worked for it.
    fn may_help(&self, history: &ThreadHistory, request: &Request) -> bool {
        // Every thread of a Go program serves requests, and goroutines change their threads.
        let is_go = self.idle.as_ref().is_some_and(IdleStacks::has_scheduler);
        history.may_help(request.start, request.end)
            || is_go && !history.has_requests_between(request.start, request.end)
    }

    /// Returns the waits of the request's threads in which another may have worked for it, and the
    /// threads without requests that woke them.
    fn waits(&self, request: &Request) -> (Waits, Set<u32>) {
        let (mut waits, mut wakers) = (Waits::default(), Set::default());
        for (index, work) in request.work.iter().enumerate() {
            if work.thread == NO_THREAD {
                waits.add(index, work.start, work.end);
                continue;
            }
            let helpers = self.wakers(work.thread, work.start, work.end);
            let mut intervals = self.between(work.thread, work.start, work.end);
            walk_stacks(&mut intervals, work.start, work.end, |stack, from, to| {
                // In the middle of a function it waits for what the waker did.
                let is_for_helper = || !helpers.is_empty() && !self.wakers(work.thread, to, to).is_empty();
                if self.is_idle(stack) || waiting_in(stack).is_some() && is_for_helper() {
                    waits.add(index, from, to);
                }
            });
            wakers.extend(helpers);
        }
        (waits, wakers)
    }

    /// Returns the threads without requests that woke a thread between two times.
    fn wakers(&self, thread: u32, from: u64, to: u64) -> Vec<u32> {
        let Some(history) = self.threads.get(&thread) else { return Vec::new() };
        let numbers = history.wakers_between(from, to).filter_map(|tid| self.by_tid.get(&tid).copied());
        numbers.filter(|number| self.threads.get(number).is_some_and(ThreadHistory::serves_none)).collect()
    }

    fn needs_names(&self) -> bool {
        self.idle.is_some() || self.polling.is_some()
    }

    /// Learns a function's name.
    fn learn(&mut self, function: u64, name: &str) {
        if let Some(idle) = self.idle.as_mut().filter(|_| GO_SCHEDULER.contains(&name)) {
            idle.add_scheduler(function);
        }
        if let Some(polling) = &mut self.polling {
            polling.learn(function, name);
        }
    }

    fn is_idle(&self, stack: &[Activity]) -> bool {
        self.idle.as_ref().is_some_and(|idle| idle.contains(stack))
    }

    /// Returns whether threads wait for work in the function, or in one that it calls.
    pub(super) fn calls_wait(&self, function: u64) -> bool {
        self.idle.as_ref().is_some_and(|idle| idle.calls_wait(function))
    }

    fn take(&mut self, event: &Event) {
        match event.kind {
            EventKind::Held { lock, site, hold, .. } => {
                let start = event.time.saturating_sub(hold);
                self.holds.add(lock, Hold { thread: event.thread, site, start, end: event.time });
            }
            EventKind::Acquired { lock, site, .. } => self.holds.acquired(lock, event.thread, site, event.time),
            EventKind::Released { lock, site, .. } => self.holds.released(lock, event.thread, site, event.time),
            EventKind::RequestBlock { queue: Some(queue), .. }
                if matches!(Queue::from_event(queue), Queue::Named(_) | Queue::Stack(_)) =>
            {
                self.polling.get_or_insert_default();
            }
            _ => {}
        }
        if self.threads.len() >= THREADS && !self.threads.contains_key(&event.thread) {
            self.threads.clear();
            (self.count, self.forgotten) = (0, event.time);
        }
        let history = self.threads.entry(event.thread).or_default();
        let before = history.intervals.len();
        history.add_event(event, &self.clock_gaps);
        if let (EventKind::Call { function, .. }, Some(polling)) = (event.kind, &self.polling) {
            history.waits_for_work |= polling.is_idle(function);
        }
        self.count += history.intervals.len() - before;
        if self.count >= MOST {
            self.discard_half();
        }
    }

    /// Discards the older half.
    fn discard_half(&mut self) {
        let keep = (MOST / 2 / self.threads.len().max(1)).max(1);
        self.count = 0;
        for history in self.threads.values_mut() {
            let surplus = history.intervals.len().saturating_sub(keep);
            if let Some(last) = history.intervals.drain(..surplus).next_back() {
                self.forgotten = self.forgotten.max(last.recorded_at);
            }
            self.count += history.intervals.len();
        }
        // Threads without history have probably ended.
        self.threads.retain(|_, history| !history.intervals.is_empty() || history.off_cpu().is_some());
    }

    /// Returns the intervals of a thread between two times, in the order of recording.
    pub fn between(&self, thread: u32, from: u64, to: u64) -> Vec<Interval> {
        let Some(history) = self.threads.get(&thread) else { return Vec::new() };
        let mut intervals = history.between(from, to);
        if let Some((since, why)) = history.off_cpu().filter(|(since, _)| *since < to) {
            intervals.push(Interval { start: since, end: to, recorded_at: to, activity: Activity::Off(why) });
        }
        intervals
    }

    /// Returns the holds of a lock between two times, except the waiter's.
    pub fn holders(&self, lock: u64, waiter: u32, from: u64, to: u64) -> Vec<Hold> {
        self.holds.between(lock, waiter, from, to)
    }

    /// Breaks down a request's time.
    pub fn breakdown(&self, request: &Request) -> Breakdown {
        let between = |thread, from, to| self.between(thread, from, to);
        let mut breakdown = breakdown::break_down(request, |stack| self.is_idle(stack), between);
        breakdown.incomplete = request.truncated || (self.forgotten > 0 && request.start < self.forgotten);
        breakdown
    }

    /// Reports each piece of a request's time with its thread's stack, the outermost activity
    /// first.
    ///
    /// Where the stacks of switches are known, the time in which a thread waited for work or for a
    /// CPU is left out: no function of the program is the reason.
    pub fn stacks(&self, request: &Request, mut visit: impl FnMut(&[Activity], u64, u64)) {
        let is_waiting = |stack: &[Activity]| {
            let of_machine = matches!(stack.last(), Some(Activity::Off(OffCpu::Runnable | OffCpu::Stopped)));
            self.idle.is_some() && (of_machine || self.is_idle(stack))
        };
        for work in request.worked() {
            let mut intervals = self.between(work.thread, work.start, work.end);
            walk_stacks(&mut intervals, work.start, work.end, |stack, from, to| {
                if !is_waiting(stack) {
                    visit(stack, from, to);
                }
            });
        }
    }

    /// Returns the nanoseconds of a request in each function, its calls included.
    pub fn inclusive(&self, request: &Request) -> Sums<u64> {
        let [mut all, waiting] = self.inclusive_by_state(request);
        waiting.iter().for_each(|(function, nanos)| all.add(function, nanos));
        all
    }

    /// Returns the nanoseconds of a request in each function, its calls included: on a CPU, and off
    /// it. Where all calls are recorded, they are not told apart.
    pub(super) fn inclusive_by_state(&self, request: &Request) -> [Sums<u64>; 2] {
        let mut parts = <[Sums<u64>; 2]>::default();
        if self.idle.is_none() {
            parts[0] = breakdown::inclusive(request, |thread, from, to| self.between(thread, from, to));
            return parts;
        }
        let mut seen = Set::default();
        self.stacks(request, |stack, from, to| {
            seen.clear();
            let is_waiting = stack.last().is_some_and(Activity::is_leaf);
            for activity in stack {
                // Recursion counts once.
                if let Activity::Call { function, .. } = *activity
                    && seen.insert(function)
                {
                    parts[usize::from(is_waiting)].add(function, to - from);
                }
            }
        });
        parts
    }
}

/// Returns the event with the function that stands for its own.
fn represented(event: &Event, symbols: &mut Symbols) -> Event {
    let mut event = *event;
    if let EventKind::Call { function, .. } = &mut event.kind {
        *function = symbols.representative(*function, event.time);
    }
    event
}

/// Functions of Go's scheduler in which a thread has no goroutine. A goroutine never blocks its
/// thread in a futex; the stack of such a wait may be unknown but for that.
const GO_SCHEDULER: [&str; 4] = ["runtime.schedule", "runtime.findRunnable", "runtime.stopm", "runtime.futex"];

/// Reports each request with the history of its threads and locks; returns the number of requests
/// without an end.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn follow(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    watch: &mut ProgressCallback<'_>,
    mut done: impl FnMut(&Request, &TraceHistory, &mut Symbols),
) -> Result<u64, TraceError> {
    let mut history = TraceHistory::new(trace);
    if history.idle.is_some() {
        history.idle = Some(idle_stacks(trace, symbols, selection, watch)?);
    }
    let report = |request: &Request, history: &mut TraceHistory, symbols: &mut Symbols| {
        let request = history.with_starved(history.with_helper(request));
        done(&request, history, symbols);
    };
    Follower::new(&mut history, selection).read(trace, symbols, watch, report)
}

/// Returns the stacks in which threads wait for work. A first pass over the trace learns them: else
/// they would not be known of the first requests.
fn idle_stacks(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    watch: &mut ProgressCallback<'_>,
) -> Result<IdleStacks, TraceError> {
    let weights = RequestWeights::new(trace, selection);
    let learn = |request: &Request, history: &mut TraceHistory, _: &mut Symbols| {
        history.learn_idle(request, weights.weight(request));
    };
    let mut history = TraceHistory::new(trace);
    Follower::new(&mut history, selection).read(trace, symbols, watch, learn)?;
    Ok(history.idle.unwrap_or_default().settled())
}

/// Follows a trace.
#[derive(Debug)]
struct Follower<'a> {
    selector: Selector,
    history: &'a mut TraceHistory,
    ended: VecDeque<(u64, Request)>,
    /// Functions whose names were looked up.
    named: Set<u64>,
}

impl Follower<'_> {
    /// Creates a follower that looks for these requests.
    fn new<'a>(history: &'a mut TraceHistory, selection: &Selection) -> Follower<'a> {
        Follower { selector: Selector::new(selection), history, ended: VecDeque::new(), named: Set::default() }
    }

    /// Reads the trace in the order of time; reports requests a moment after their ends, and
    /// returns the number of those without an end.
    fn read(
        mut self,
        trace: &Trace,
        symbols: &mut Symbols,
        watch: &mut ProgressCallback<'_>,
        mut report: impl FnMut(&Request, &mut TraceHistory, &mut Symbols),
    ) -> Result<u64, TraceError> {
        trace.in_order(watch, |_| true, |event| self.event(event, symbols, &mut report))?;
        for (_, request) in std::mem::take(&mut self.ended) {
            report(&request, self.history, symbols);
        }
        Ok(self.selector.unfinished())
    }

    fn event(
        &mut self,
        event: &Event,
        symbols: &mut Symbols,
        report: &mut impl FnMut(&Request, &mut TraceHistory, &mut Symbols),
    ) {
        while self.ended.front().is_some_and(|(due, _)| *due <= event.time) || self.ended.len() >= MOST / 8 {
            let Some((_, request)) = self.ended.pop_front() else { break };
            report(&request, self.history, symbols);
        }
        let event = &represented(event, symbols);
        if let EventKind::Call { function, .. } = event.kind
            && self.history.needs_names()
            && self.named.len() < FUNCTIONS
            && self.named.insert(function)
        {
            self.history.learn(function, &symbols.location(function, event.time).function());
        }
        self.history.take(event);
        let ended = &mut self.ended;
        self.selector.event(event, |request| ended.push_back((event.time.saturating_add(GRACE), request)));
    }
}
