//! Breakdown of a request's time: each nanosecond of each thread that worked on it has one cause.

use super::activity::{Activity, Interval, walk_stacks};
use super::requests::{NO_THREAD, Request};
use super::sums::Sums;
use crate::format::ObjectKind;
use crate::format::event::OffCpu;
use crate::hash::Map;
use crate::symbols::Symbols;

/// A cause for spent time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// In a function itself, not in recorded calls from it. On a CPU, if the trace has scheduler
    /// events.
    Function {
        /// An address in the function.
        function: u64,
    },
    /// In no recorded call.
    Unrecorded,
    /// Waiting for a lock or a similar object.
    Wait {
        /// Kind of the object.
        object: ObjectKind,
        /// Address of the wait.
        site: u64,
        /// The object's address.
        lock: u64,
    },
    /// Off the CPU, blocked in the kernel: input, output, sleep.
    Blocked {
        /// The surrounding function; 0 if none was recorded.
        function: u64,
    },
    /// Off the CPU although it could run.
    Descheduled,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// The thread waited where it waits for work, or no thread had the request: what it waited for
    /// is not known.
    Idle,
    /// In a queue, with no thread working on it; or a future that awaits something, or is ready.
    Queued {
        /// The queue of the event; see [`Queue`](crate::format::queue::Queue).
        queue: u64,
    },
}

impl Cause {
    /// Returns the cause of time with this stack.
    pub fn from_stack(stack: &[Activity]) -> Cause {
        let call = |activity: &Activity| match activity {
            Activity::Call { function, .. } => Some(*function),
            _ => None,
        };
        match stack.last() {
            None => Cause::Unrecorded,
            Some(Activity::Call { function, .. }) => Cause::Function { function: *function },
            Some(Activity::Wait { object, lock, site }) => Cause::Wait { object: *object, site: *site, lock: *lock },
            Some(Activity::Off(OffCpu::Runnable)) => Cause::Descheduled,
            Some(Activity::Off(OffCpu::Stopped)) => Cause::Stopped,
            Some(Activity::Off(OffCpu::Blocked)) => {
                Cause::Blocked { function: stack.iter().rev().find_map(call).unwrap_or(0) }
            }
        }
    }

    /// Describes the cause, as the start of a line.
    pub fn describe(&self, symbols: &mut Symbols, time: u64) -> String {
        match *self {
            Cause::Function { function } => format!("in {}", symbols.location(function, time).definition()),
            Cause::Unrecorded => "outside recorded calls".into(),
            Cause::Wait { object, site, .. } if site != 0 => {
                let article = if object == ObjectKind::Other { "an" } else { "a" };
                format!("waiting for {article} {}, {}", object.name(), symbols.site(site, time).describe())
            }
            Cause::Wait { object, lock, .. } => format!("waiting for the {} at {lock:#x}", object.name()),
            Cause::Blocked { function: 0 } => "off the CPU, blocked".into(),
            Cause::Blocked { function } => {
                format!("off the CPU, blocked in {}", symbols.location(function, time).function())
            }
            Cause::Descheduled => "off the CPU, though it could run".into(),
            Cause::Stopped => "stopped by a signal or a debugger".into(),
            Cause::Idle => "waiting for an event or another thread".into(),
            Cause::Queued { queue } => symbols.queue(queue, time),
        }
    }
}

/// A wait for an object that other threads can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Thread that waited.
    pub thread: u32,
    /// Start of the wait.
    pub start: u64,
    /// End of the wait.
    pub end: u64,
    /// Kind of the object.
    pub object: ObjectKind,
    /// The object's address.
    pub lock: u64,
    /// Address of the wait.
    pub site: u64,
}

/// Breakdown of a request's time.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// Nanoseconds per cause. The sum is the latency, unless several threads worked at the same
    /// time.
    pub causes: Sums<Cause>,
    /// The waits for locks.
    pub waits: Vec<LockWait>,
    /// Part of the history, or of the request's spans, was discarded.
    pub incomplete: bool,
}

/// Number of waits of one request that are examined individually.
const WAITS: usize = 1000;

/// Breaks down the time of a request by the activities of its threads. `is_idle` tells stacks in
/// which a thread waits for work.
pub fn break_down(
    request: &Request,
    is_idle: impl Fn(&[Activity]) -> bool,
    between: impl Fn(u32, u64, u64) -> Vec<Interval>,
) -> Breakdown {
    let mut breakdown = Breakdown::default();
    for work in &request.work {
        if work.thread == NO_THREAD {
            breakdown.causes.add(Cause::Idle, work.end.saturating_sub(work.start));
            continue;
        }
        let mut intervals = between(work.thread, work.start, work.end);
        for interval in &intervals {
            if let Activity::Wait { object, lock, site } = interval.activity
                && breakdown.waits.len() < WAITS
            {
                let (start, end) = (interval.start.max(work.start), interval.end.min(work.end));
                breakdown.waits.push(LockWait { thread: work.thread, start, end, object, lock, site });
            }
        }
        walk_stacks(&mut intervals, work.start, work.end, |stack, from, to| {
            let cause = if is_idle(stack) { Cause::Idle } else { Cause::from_stack(stack) };
            breakdown.causes.add(cause, to - from);
        });
    }
    for (queue, from, to) in &request.queued {
        breakdown.causes.add(Cause::Queued { queue: *queue }, to - from);
    }
    breakdown
}

/// Returns the nanoseconds of a request in each function, its calls included; recursion counts
/// once.
pub fn inclusive(request: &Request, between: impl Fn(u32, u64, u64) -> Vec<Interval>) -> Sums<u64> {
    let mut sums = Sums::default();
    for work in &request.work {
        include(&between(work.thread, work.start, work.end), work.start, work.end, &mut sums);
    }
    sums
}

/// Adds the time in each function, its calls included: the union of its calls, because of
/// recursion.
fn include(intervals: &[Interval], from: u64, to: u64, inclusive: &mut Sums<u64>) {
    let mut calls: Vec<(u64, u64, u64)> = Vec::new();
    for interval in intervals {
        if let Activity::Call { function, .. } = interval.activity {
            calls.push((function, interval.start.max(from), interval.end.min(to)));
        }
    }
    calls.sort_unstable();
    let mut last = (0, 0);
    for (function, start, end) in calls {
        let begin = if last.0 == function { start.max(last.1) } else { start };
        inclusive.add(function, end.saturating_sub(begin));
        last = (function, if last.0 == function { end.max(last.1) } else { end });
    }
}

/// Adds up a thread's causes between two times.
pub fn add_causes(mut intervals: Vec<Interval>, from: u64, to: u64, causes: &mut Map<Cause, u64>) {
    walk_stacks(&mut intervals, from, to, |stack, from, to| {
        *causes.entry(Cause::from_stack(stack)).or_default() += to - from;
    });
}
