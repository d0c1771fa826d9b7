//! Requests, built from their start, block and end events: start and end, work and waiting.

use crate::format::{Event, EventKind};
use crate::hash::Map;

/// Limit of open requests. Beyond it the oldest half is abandoned: their ends are missing.
const OPEN: usize = 1 << 17;
/// Limit of remembered spans of work and of waiting per request.
const SPANS_MAX: usize = 4096;

/// Limit of such spans over all open requests.
const TOTAL_SPANS_MAX: usize = 1 << 20;
/// Limit of lists that are kept for reuse.
const FREE_LISTS_MAX: usize = 1 << 10;
/// Number of threads from which threads without a request are removed.
const THREADS: usize = 1 << 12;

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
    /// Queues in which the request waited: address (0 unknown), start, end.
    pub queued: Vec<(u64, u64, u64)>,
    /// Some spans were omitted, because there were too many.
    pub truncated: bool,
    /// Index of the label's text; 0 without a label.
    pub label: u32,
    /// Time in which the request's thread waited for work; it does not count for the request.
    pub idle: u64,
}

impl Request {
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

/// Follows requests through events in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    open: Map<u64, OpenRequest>,
    /// Requests of each thread.
    threads: Map<u32, Vec<u64>>,
    /// Lists of finished requests, for reuse.
    free_lists: Vec<Vec<(u32, u64)>>,
    /// Number of abandoned requests.
    abandoned: u64,
    /// Starts since spans were last counted.
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
            EventKind::RequestEnd { id } => self.end(id, now).into_iter().for_each(done),
            EventKind::RequestEndAll => {
                for id in self.threads.remove(&thread).unwrap_or_default() {
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
        self.starts += 1;
        let new = !self.open.contains_key(&id);
        if self.open.len() >= OPEN && new || self.starts >= TOTAL_SPANS_MAX && self.span_count() >= TOTAL_SPANS_MAX / 2
        {
            self.give_up_half();
        }
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
            },
            running: self.free_lists.pop().unwrap_or_default(),
            waits: None,
        });
        if let Some((queue, since)) = open.waits.take() {
            if open.request.queued.len() < SPANS_MAX {
                open.request.queued.push((queue, since, now));
            } else {
                open.request.truncated = true;
            }
        }
        if open.running.iter().all(|(working, _)| *working != thread) && open.running.len() < SPANS_MAX {
            open.running.push((thread, now));
            self.threads.entry(thread).or_default().push(id);
        }
    }

    fn block(&mut self, id: u64, thread: u32, now: u64, queue: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        stop(open, now, |working| working == thread);
        if open.running.is_empty() {
            open.waits = Some((queue, now));
        }
        leave(&mut self.threads, thread, id);
    }

    fn end(&mut self, id: u64, now: u64) -> Option<Request> {
        let mut open = self.open.remove(&id)?;
        for (thread, _) in &open.running {
            leave(&mut self.threads, *thread, id);
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

    /// Counts the spans of all open requests.
    fn span_count(&mut self) -> usize {
        self.starts = 0;
        self.open.values().map(|open| open.request.work.len() + open.request.queued.len()).sum()
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
            ids.retain(|id| open.contains_key(id));
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
        if request.work.len() < SPANS_MAX {
            request.work.push(WorkSpan { thread: *thread, start: *since, end: now });
        } else {
            request.truncated = true;
        }
        false
    });
}

fn leave(threads: &mut Map<u32, Vec<u64>>, thread: u32, id: u64) {
    if let Some(ids) = threads.get_mut(&thread) {
        ids.retain(|other| *other != id);
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
                idle: 0
            }]
        );
        assert_eq!(unfinished, 0);
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
