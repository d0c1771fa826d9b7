//! Requests, built from their start, block and end events: start and end, work and waiting.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::context::{ContextField, RemoteCall, RequestContext};
use crate::format::{Event, EventKind};
use crate::hash::Map;

/// Limit of open requests. Beyond it the oldest half is abandoned: their ends are missing.
const OPEN: usize = 1 << 17;
/// Limit of remembered spans of work and of waiting per request; beyond it the longer half is kept.
const SPANS_MAX: usize = 4096;
/// Limit of the queues for which the time of shorter waits is kept.
const MERGED_QUEUES_MAX: usize = SPANS_MAX / 8;

/// Limit of such spans over all open requests.
const TOTAL_SPANS_MAX: usize = 1 << 20;
/// Limit of remembered calls to other processes per request: the first ones.
pub(crate) const CALLS_MAX: usize = 4096;
/// Limit of lists that are kept for reuse.
const FREE_LISTS_MAX: usize = 1 << 10;
/// Number of threads from which threads without a request are removed.
const THREADS: usize = 1 << 12;

/// Stands for a thread in a span of time in which no thread is known to have worked.
pub(crate) const NO_THREAD: u32 = u32::MAX;

/// Work of a thread on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSpan {
    /// The thread.
    pub thread: u32,
    /// Start of the work.
    pub start: u64,
    /// End of the work.
    pub end: u64,
}

/// A finished request. Times in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request's id.
    pub id: u64,
    /// Start of the request.
    pub start: u64,
    /// End of the request.
    pub end: u64,
    /// Work of threads on the request.
    pub work: Vec<WorkSpan>,
    /// Queues in which the request waited: address (0 unknown), start, end. Of too many waits, one
    /// span per queue has the sum of the shorter ones.
    pub queued: Vec<(u64, u64, u64)>,
    /// The shortest spans of work or of waiting, or the last calls, were omitted: there were too
    /// many.
    pub truncated: bool,
    /// Index of the label's text; 0 without a label.
    pub label: u32,
    /// Time in which the request's thread waited for work; it does not count for the request.
    pub idle: u64,
    /// Trace context, if the program reports one.
    pub context: Option<Box<RequestContext>>,
}

impl Request {
    /// Returns the spans in which a thread is known to have worked.
    pub(crate) fn worked(&self) -> impl Iterator<Item = &WorkSpan> {
        self.work.iter().filter(|work| work.thread != NO_THREAD)
    }

    /// Returns the request's latency, without `idle`.
    pub fn latency(&self) -> u64 {
        self.end.saturating_sub(self.start).saturating_sub(self.idle)
    }
}

#[derive(Clone, Debug)]
struct OpenRequest {
    request: Request,
    /// Threads that work on the request now, with the start of the work.
    running: Vec<(u32, u64)>,
    waits: Option<(u64, u64)>,
}

impl OpenRequest {
    /// Ends the request's wait in a queue, if there is one.
    fn leave_queue(&mut self, now: u64) {
        let Some((queue, since)) = self.waits.take().filter(|(_, since)| *since < now) else { return };
        if self.request.queued.len() >= SPANS_MAX {
            merge_shorter(&mut self.request.queued);
            self.request.truncated = true;
        }
        self.request.queued.push((queue, since, now));
    }
}

/// Follows requests through events in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    open: Map<u64, OpenRequest>,
    /// Requests on which each thread works, with the start of the work.
    threads: Map<u32, BTreeSet<(u64, u64)>>,
    /// Lists of finished requests, for reuse.
    free_lists: Vec<Vec<(u32, u64)>>,
    /// Number of abandoned requests.
    abandoned: u64,
    /// Starts and calls since spans were last counted.
    starts: usize,
}

impl Tracker {
    /// Returns whether an event concerns requests.
    pub fn concerns(event: &Event) -> bool {
        matches!(
            event.kind,
            EventKind::RequestStart { .. }
                | EventKind::RequestBlock { .. }
                | EventKind::RequestEnd { .. }
                | EventKind::RequestEndAll
                | EventKind::RequestLabel { .. }
                | EventKind::RequestContext { .. }
                | EventKind::RemoteCall { .. }
                | EventKind::RemoteAnswer { .. }
        )
    }

    /// Processes an event; passes requests that it ends to `done`.
    pub fn event(&mut self, event: &Event, mut done: impl FnMut(Request)) {
        let (thread, now) = (event.thread, event.time);
        match event.kind {
            EventKind::RequestStart { id, .. } => self.start(id, thread, now),
            EventKind::RequestBlock { id, queue } => self.block(id, thread, now, queue.unwrap_or(0)),
            EventKind::RequestLabel { id, label } => {
                if let Some(open) = self.open.get_mut(&id) {
                    open.request.label = label;
                }
            }
            EventKind::RequestContext { id, field, value } => self.set_context(id, field, value),
            EventKind::RemoteCall { id, span, peer } => {
                self.call(id, RemoteCall { span, peer, sent: now, answered: None })
            }
            EventKind::RemoteAnswer { id, span } => self.answer(id, span, now),
            EventKind::RequestEnd { id } => self.end(id, now).into_iter().for_each(done),
            EventKind::RequestEndAll => {
                for (_, id) in self.threads.remove(&thread).unwrap_or_default() {
                    self.end(id, now).into_iter().for_each(&mut done);
                }
            }
            _ => {}
        }
    }

    /// Returns the number of requests without an end, the abandoned ones included.
    pub fn unfinished(&self) -> u64 {
        self.open.len() as u64 + self.abandoned
    }

    fn start(&mut self, id: u64, thread: u32, now: u64) {
        self.make_room(!self.open.contains_key(&id));
        let open = self.open.entry(id).or_insert_with(|| OpenRequest {
            request: Request {
                id,
                start: now,
                end: now,
                work: Vec::new(),
                queued: Vec::new(),
                truncated: false,
                label: 0,
                idle: 0,
                context: None,
            },
            running: self.free_lists.pop().unwrap_or_default(),
            waits: None,
        });
        open.leave_queue(now);
        if open.running.iter().all(|(working, _)| *working != thread) && open.running.len() < SPANS_MAX {
            open.running.push((thread, now));
            self.threads.entry(thread).or_default().insert((now, id));
        }
    }

    fn block(&mut self, id: u64, thread: u32, now: u64, queue: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let since = open.running.iter().find(|(working, _)| *working == thread).map(|(_, since)| *since);
        stop(open, now, |working| working == thread);
        if open.running.is_empty() {
            // A request that waits moves to another queue.
            open.leave_queue(now);
            open.waits = Some((queue, now));
        }
        if let Some(since) = since {
            leave(&mut self.threads, thread, (since, id));
        }
    }

    fn end(&mut self, id: u64, now: u64) -> Option<Request> {
        let mut open = self.open.remove(&id)?;
        for (thread, since) in &open.running {
            leave(&mut self.threads, *thread, (*since, id));
        }
        stop(&mut open, now, |_| true);
        if self.free_lists.len() < FREE_LISTS_MAX {
            self.free_lists.push(std::mem::take(&mut open.running));
        }
        let mut request = open.request;
        if let Some((queue, since)) = open.waits {
            request.queued.push((queue, since, now));
        }
        request.end = now;
        Some(request)
    }

    fn set_context(&mut self, id: u64, field: ContextField, value: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.request.context.get_or_insert_default().set(field, value);
        }
    }

    fn call(&mut self, id: u64, call: RemoteCall) {
        self.make_room(false);
        let Some(open) = self.open.get_mut(&id) else { return };
        let context = open.request.context.get_or_insert_default();
        if context.calls.len() < CALLS_MAX {
            context.calls.push(call);
        } else {
            open.request.truncated = true;
        }
    }

    fn answer(&mut self, id: u64, span: u64, now: u64) {
        let Some(context) = self.open.get_mut(&id).and_then(|open| open.request.context.as_mut()) else { return };
        let mut calls = context.calls.iter_mut().rev();
        if let Some(call) = calls.find(|call| call.span == span && call.answered.is_none()) {
            call.answered = Some(now);
        }
    }

    /// Abandons requests before a start or a call if there are too many of them, or of their spans.
    fn make_room(&mut self, is_new: bool) {
        self.starts += 1;
        if self.open.len() >= OPEN && is_new
            || self.starts >= TOTAL_SPANS_MAX && self.span_count() >= TOTAL_SPANS_MAX / 2
        {
            self.give_up_half();
        }
    }

    /// Counts the spans and calls of all open requests.
    fn span_count(&mut self) -> usize {
        self.starts = 0;
        let of_context = |context: &RequestContext| context.calls.len();
        let of_request = |request: &Request| {
            request.work.len() + request.queued.len() + request.context.as_deref().map_or(0, of_context)
        };
        self.open.values().map(|open| of_request(&open.request)).sum()
    }

    fn give_up_half(&mut self) {
        let mut starts: Vec<u64> = self.open.values().map(|open| open.request.start).collect();
        let middle = starts.len() / 2;
        let (_, median, _) = starts.select_nth_unstable(middle);
        let median = *median;
        let before = self.open.len();
        self.open.retain(|_, open| open.request.start > median);
        self.abandoned += (before - self.open.len()) as u64;
        let open = &self.open;
        self.threads.retain(|_, ids| {
            ids.retain(|(_, id)| open.contains_key(id));
            !ids.is_empty()
        });
    }
}

fn stop(open: &mut OpenRequest, now: u64, which: impl Fn(u32) -> bool) {
    let request = &mut open.request;
    open.running.retain(|(thread, since)| {
        if !which(*thread) {
            return true;
        }
        if request.work.len() >= SPANS_MAX {
            remove_shorter(&mut request.work, |work| work.end.saturating_sub(work.start));
            request.truncated = true;
        }
        request.work.push(WorkSpan { thread: *thread, start: *since, end: now });
        false
    });
}

/// Removes the shorter half of the spans, and returns it.
fn remove_shorter<T: Copy>(spans: &mut Vec<T>, length: impl Fn(&T) -> u64) -> Vec<T> {
    // The indices tell spans of the same length apart.
    let mut lengths: Vec<(u64, usize)> = spans.iter().map(&length).zip(0..).collect();
    let middle = lengths.len() / 2;
    let limit = *lengths.select_nth_unstable(middle).1;
    let (mut shorter, mut index) = (Vec::with_capacity(middle), 0);
    spans.retain(|span| {
        let is_kept = (length(span), index) >= limit;
        index += 1;
        if !is_kept {
            shorter.push(*span);
        }
        is_kept
    });
    shorter
}

/// Merges the shorter half of the waits into one per queue, so that the sums of the queues stay.
fn merge_shorter(queued: &mut Vec<(u64, u64, u64)>) {
    let mut merged: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (queue, from, to) in remove_shorter(queued, |(_, from, to)| to - from) {
        let is_known = merged.len() < MERGED_QUEUES_MAX || merged.contains_key(&queue);
        let (first, nanos) = merged.entry(if is_known { queue } else { 0 }).or_insert((from, 0));
        (*first, *nanos) = (from.min(*first), *nanos + (to - from));
    }
    queued.extend(merged.into_iter().map(|(queue, (from, nanos))| (queue, from, from + nanos)));
}

fn leave(threads: &mut Map<u32, BTreeSet<(u64, u64)>>, thread: u32, work: (u64, u64)) {
    if let Some(ids) = threads.get_mut(&thread) {
        ids.remove(&work);
        // Most threads begin another request soon; the entries of ended threads must not
        // accumulate.
        if ids.is_empty() && threads.len() > THREADS {
            threads.remove(&thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(events: &[(u32, u64, EventKind)]) -> (Vec<Request>, u64) {
        let (mut tracker, mut requests) = (Tracker::default(), Vec::new());
        for (thread, time, kind) in events {
            tracker.event(&Event { time: *time, thread: *thread, kind: *kind }, |request| requests.push(request));
        }
        (requests, tracker.unfinished())
    }

    #[test]
    fn a_request_moves_between_threads() {
        let (requests, unfinished) = all(&[
            (1, 10, EventKind::RequestStart { id: 7, queue: None }),
            (1, 20, EventKind::RequestBlock { id: 7, queue: Some(9) }),
            (2, 50, EventKind::RequestStart { id: 7, queue: Some(9) }),
            (2, 60, EventKind::RequestEnd { id: 7 }),
        ]);
        let work = vec![WorkSpan { thread: 1, start: 10, end: 20 }, WorkSpan { thread: 2, start: 50, end: 60 }];
        assert_eq!(
            requests,
            [Request {
                id: 7,
                start: 10,
                end: 60,
                work,
                queued: vec![(9, 20, 50)],
                truncated: false,
                label: 0,
                idle: 0,
                context: None
            }]
        );
        assert_eq!(unfinished, 0);
    }

    #[test]
    fn of_too_many_spans_the_longest_stay_and_the_sums_of_the_queues() {
        let mut events = vec![(1, 0, EventKind::RequestStart { id: 7, queue: None })];
        let (mut now, mut sums) = (0, [0; 2]);
        let wait = |events: &mut Vec<_>, now: &mut u64, queue, nanos, work| {
            *now += work;
            events.push((1, *now, EventKind::RequestBlock { id: 7, queue: Some(queue) }));
            *now += nanos;
            events.push((1, *now, EventKind::RequestStart { id: 7, queue: Some(queue) }));
        };
        wait(&mut events, &mut now, 9, 50_000, 40_000);
        for poll in 0..20_000_u64 {
            let (queue, nanos) = (poll % 2, 10 + poll % 7);
            sums[queue as usize] += nanos;
            wait(&mut events, &mut now, 4 + queue, nanos, 5);
        }
        wait(&mut events, &mut now, 9, 60_000, 30_000);
        events.push((1, now, EventKind::RequestEnd { id: 7 }));
        let (requests, _) = all(&events);
        let request = &requests[0];
        assert!(request.truncated && request.queued.len() <= SPANS_MAX && request.work.len() <= SPANS_MAX);
        let sum = |queue| request.queued.iter().filter(|wait| wait.0 == queue).map(|wait| wait.2 - wait.1).sum::<u64>();
        assert_eq!([sum(4), sum(5), sum(9)], [sums[0], sums[1], 110_000]);
        assert!(request.queued.contains(&(9, now - 60_000, now)), "the last wait");
        assert!(request.queued.iter().all(|(_, from, to)| from < to && *to <= request.end));
        let mut work: Vec<u64> = request.work.iter().map(|work| work.end - work.start).collect();
        work.sort_unstable();
        assert_eq!(work[work.len() - 2..], [30_000, 40_000]);
    }

    #[test]
    fn the_times_of_many_queues_become_one() {
        let mut queued: Vec<(u64, u64, u64)> = (0..SPANS_MAX as u64).map(|at| (at + 1, at * 9, at * 9 + 5)).collect();
        merge_shorter(&mut queued);
        assert!(queued.len() <= SPANS_MAX * 3 / 4, "{}", queued.len());
        assert_eq!(queued.iter().map(|(_, from, to)| to - from).sum::<u64>(), SPANS_MAX as u64 * 5);
    }

    #[test]
    fn many_requests_of_one_thread_end_in_any_order() {
        let start = |id| (1, id, EventKind::RequestStart { id, queue: None });
        let mut events: Vec<_> = (1..=9).map(start).collect();
        events.extend([5, 1, 9].map(|id| (1, 20 + id, EventKind::RequestEnd { id })));
        events.push((1, 30, EventKind::RequestBlock { id: 3, queue: None }));
        events.push((1, 40, EventKind::RequestEndAll));
        let (requests, unfinished) = all(&events);
        assert_eq!(requests.iter().map(|one| one.id).collect::<Vec<_>>(), [5, 1, 9, 2, 4, 6, 7, 8]);
        assert_eq!(unfinished, 1);
    }

    #[test]
    fn a_request_keeps_its_label_until_its_end() {
        let (requests, _) = all(&[
            (1, 1, EventKind::RequestLabel { id: 7, label: 3 }),
            (1, 2, EventKind::RequestStart { id: 7, queue: None }),
            (1, 3, EventKind::RequestLabel { id: 7, label: 4 }),
            (2, 4, EventKind::RequestLabel { id: 7, label: 5 }),
            (1, 5, EventKind::RequestEnd { id: 7 }),
            (1, 6, EventKind::RequestStart { id: 7, queue: None }),
            (1, 7, EventKind::RequestEnd { id: 7 }),
        ]);
        assert_eq!(requests.iter().map(|one| one.label).collect::<Vec<_>>(), [5, 0]);
    }

    #[test]
    fn a_request_keeps_its_context_and_calls() {
        let (requests, _) = all(&[
            (1, 1, EventKind::RequestContext { id: 7, field: ContextField::Span, value: 9 }),
            (1, 2, EventKind::RequestStart { id: 7, queue: None }),
            (1, 2, EventKind::RequestContext { id: 7, field: ContextField::TraceLow, value: 5 }),
            (1, 2, EventKind::RequestContext { id: 7, field: ContextField::Span, value: 6 }),
            (1, 3, EventKind::RemoteCall { id: 7, span: 8, peer: 1 }),
            (2, 4, EventKind::RemoteCall { id: 7, span: 8, peer: 0 }),
            (2, 5, EventKind::RemoteAnswer { id: 7, span: 8 }),
            (2, 6, EventKind::RemoteAnswer { id: 7, span: 9 }),
            (1, 7, EventKind::RequestEnd { id: 7 }),
            (1, 8, EventKind::RequestStart { id: 7, queue: None }),
            (1, 9, EventKind::RequestEnd { id: 7 }),
        ]);
        let calls = vec![
            RemoteCall { span: 8, peer: 1, sent: 3, answered: None },
            RemoteCall { span: 8, peer: 0, sent: 4, answered: Some(5) },
        ];
        let context = RequestContext { trace: 5, span: 6, parent: 0, calls };
        assert_eq!(requests[0].context.as_deref(), Some(&context));
        assert_eq!(requests[1].context, None, "another request");
    }

    #[test]
    fn a_batch_ends_together_and_request_ids_are_reused() {
        let start = |id| EventKind::RequestStart { id, queue: None };
        let (requests, unfinished) = all(&[
            (1, 1, start(1)),
            (1, 2, start(2)),
            (1, 3, EventKind::RequestEndAll),
            (1, 4, start(1)),
            (1, 5, EventKind::RequestEnd { id: 1 }),
            (2, 6, start(3)),
        ]);
        assert_eq!(
            requests.iter().map(|one| (one.id, one.start, one.end)).collect::<Vec<_>>(),
            [(1, 1, 3), (2, 2, 3), (1, 4, 5)]
        );
        assert_eq!(unfinished, 1);
    }

    #[test]
    fn ends_without_a_start_are_ignored() {
        assert_eq!(
            all(&[
                (1, 1, EventKind::RequestEnd { id: 1 }),
                (1, 2, EventKind::RequestEndAll),
                (1, 3, EventKind::RequestBlock { id: 4, queue: None })
            ]),
            (vec![], 0)
        );
    }
}
