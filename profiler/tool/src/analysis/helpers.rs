//! Threads that work for a request, but neither read nor answer it: of pools and executors.
//!
//! The request's own threads wait meanwhile. A helper is a thread without requests that is busy in
//! nearly all of this time, and either wakes one of them or rests otherwise. Does not decide where
//! threads wait for work.

use super::activity::{Activity, Interval, walk_stacks};
use super::requests::{Request, WorkSpan};
use crate::format::event::OffCpu;

/// Shortest waiting of a request in ns for which a helper is looked for: samples tell no more.
pub(super) const SHORTEST: u64 = 100_000;
/// Least share of the waiting in which a helper is busy, in per cent.
const BUSY: u64 = 75;
/// Limit of a request's waits that are examined.
const WAITS: usize = 1000;

/// Waits of a request's own threads: index of the span of work, and the time.
#[derive(Debug, Default)]
pub(super) struct Waits {
    spans: Vec<(usize, u64, u64)>,
    total: u64,
}

impl Waits {
    /// Adds a wait; the calls must be in the order of time.
    pub(super) fn add(&mut self, work: usize, from: u64, to: u64) {
        let is_full = self.spans.len() >= WAITS;
        match self.spans.last_mut() {
            Some((last, _, end)) if *last == work && *end == from => *end = to,
            _ if is_full => return,
            _ => self.spans.push((work, from, to)),
        }
        self.total += to - from;
    }

    /// Returns whether it is worth while to look for a helper.
    pub(super) fn are_long(&self) -> bool {
        self.total >= SHORTEST
    }
}

/// Work of a thread in the waits of a request.
#[derive(Debug, Default)]
pub(super) struct HelperWork {
    thread: u32,
    busy: u64,
    /// Index of the request's span of work, and the time in which the thread worked.
    spans: Vec<(usize, WorkSpan)>,
}

impl HelperWork {
    /// Finds the work of a thread. `is_rest` tells blocked stacks in which it waits for work.
    pub(super) fn find(
        thread: u32,
        waits: &Waits,
        is_rest: impl Fn(&[Activity]) -> bool,
        between: impl Fn(u64, u64) -> Vec<Interval>,
    ) -> HelperWork {
        let mut work = HelperWork { thread, ..HelperWork::default() };
        for (index, from, to) in &waits.spans {
            let mut worked: Option<(u64, u64)> = None;
            walk_stacks(&mut between(*from, *to), *from, *to, |stack, from, to| {
                if is_busy(stack, &is_rest) {
                    worked = Some((worked.map_or(from, |(first, _)| first), to));
                    work.busy += to - from;
                }
            });
            work.spans.extend(worked.map(|(start, end)| (*index, WorkSpan { thread, start, end })));
        }
        work
    }

    /// Returns whether the thread was busy in nearly all of the waiting.
    pub(super) fn explains(&self, waits: &Waits) -> bool {
        self.busy * 100 >= waits.total * BUSY
    }

    /// Returns the busier thread; of equals, the one with the lower number.
    pub(super) fn busier(self, other: HelperWork) -> HelperWork {
        if (other.busy, self.thread) > (self.busy, other.thread) { other } else { self }
    }

    /// Returns the request with this work in place of the waits.
    pub(super) fn within(&self, request: &Request) -> Request {
        let mut spans = self.spans.iter().peekable();
        let mut work: Vec<WorkSpan> = Vec::with_capacity(request.work.len() + 2 * self.spans.len());
        let mut push = |span: WorkSpan| work.extend((span.start < span.end).then_some(span));
        for (index, own) in request.work.iter().enumerate() {
            let mut start = own.start;
            while let Some((_, helper)) = spans.next_if(|(of, _)| *of == index) {
                push(WorkSpan { start, end: helper.start, ..*own });
                push(*helper);
                start = helper.end;
            }
            push(WorkSpan { start, ..*own });
        }
        Request { work, ..request.clone() }
    }
}

/// Returns whether a thread with this stack works.
fn is_busy(stack: &[Activity], is_rest: impl Fn(&[Activity]) -> bool) -> bool {
    match stack.last() {
        None => false,
        // A wait within the work, such as for a disk.
        Some(Activity::Off(OffCpu::Blocked)) => waiting_in(stack).is_some() && !is_rest(stack),
        Some(_) => true,
    }
}

/// Returns the innermost function of a blocked stack. Outer ones may still be open, and unknown.
pub(super) fn waiting_in(stack: &[Activity]) -> Option<u64> {
    match stack {
        [.., Activity::Call { function, .. }, Activity::Off(OffCpu::Blocked)] => Some(*function),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of the helper: it waits for work, computes, and waits for a disk.
    const POP: u64 = 1;
    const CRUNCH: u64 = 2;
    const FSYNC: u64 = 3;

    fn at(start: u64, end: u64, activity: Activity) -> Interval {
        Interval { start, end, recorded_at: end, activity }
    }

    fn call(function: u64, start: u64, end: u64) -> Interval {
        at(start, end, Activity::Call { function, caller: 0 })
    }

    fn blocked(function: u64, start: u64, end: u64) -> [Interval; 2] {
        [at(start, end, Activity::Off(OffCpu::Blocked)), call(function, start, end)]
    }

    /// A request of thread 1 from 0 to 1000, which waits from 100 to 900.
    fn waits() -> Waits {
        let mut waits = Waits::default();
        waits.add(0, 100, 500);
        waits.add(0, 500, 900);
        assert_eq!(waits.spans, [(0, 100, 900)]);
        waits
    }

    fn work(helper: &[Interval]) -> HelperWork {
        HelperWork::find(2, &waits(), |stack| waiting_in(stack) == Some(POP), |_, _| helper.to_vec())
    }

    #[test]
    fn the_helpers_work_stands_in_place_of_the_wait() {
        let helper = [&blocked(POP, 0, 150)[..], &[call(CRUNCH, 150, 880)], &blocked(POP, 880, 2000)].concat();
        let work = work(&helper);
        assert!(work.explains(&waits()));
        let request = Request {
            id: 7,
            start: 0,
            end: 1000,
            work: vec![WorkSpan { thread: 1, start: 0, end: 1000 }],
            queued: Vec::new(),
            truncated: false,
            label: 0,
            idle: 0,
            context: None,
        };
        let spans = work.within(&request).work;
        let spans: Vec<_> = spans.iter().map(|span| (span.thread, span.start, span.end)).collect();
        assert_eq!(spans, [(1, 0, 150), (2, 150, 880), (1, 880, 1000)]);
    }

    #[test]
    fn a_wait_within_the_work_is_work_and_the_wait_for_work_is_not() {
        let helper = |function| {
            let calls = [call(CRUNCH, 150, 160), call(CRUNCH, 850, 860)];
            [&blocked(POP, 0, 150)[..], &calls[..1], &blocked(function, 160, 850), &calls[1..]].concat()
        };
        assert!(work(&helper(FSYNC)).explains(&waits()));
        assert!(!work(&helper(POP)).explains(&waits()));
    }

    #[test]
    fn the_busiest_thread_is_chosen() {
        let busy = |thread, end| HelperWork::find(thread, &waits(), |_| true, |_, _| vec![call(CRUNCH, 100, end)]);
        assert_eq!(busy(2, 400).busier(busy(3, 700)).thread, 3);
        assert_eq!(busy(3, 700).busier(busy(2, 700)).thread, 2);
        assert_eq!(HelperWork::default().busier(busy(2, 101)).thread, 2);
    }
}
