//! Activities of a thread in an interval, and the conversion of nested intervals to a stack over
//! time.

use crate::format::ObjectKind;
use crate::format::event::OffCpu;

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// The thread was in a call of a function.
    Call {
        /// An address in the function.
        function: u64,
        /// Address of the call.
        caller: u64,
    },
    /// The thread waited for a lock or a similar object.
    Wait {
        /// Kind of the object.
        object: ObjectKind,
        /// The object's address.
        lock: u64,
        /// Address of the wait.
        site: u64,
    },
    /// The thread was not on a CPU.
    Off(OffCpu),
}

impl Activity {
    /// Returns whether the activity makes no calls.
    pub fn is_leaf(&self) -> bool {
        !matches!(self, Activity::Call { .. })
    }
}

/// An activity of a thread from `start` to `end`, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Start of the activity.
    pub start: u64,
    /// End of the activity.
    pub end: u64,
    /// Time at which the interval was recorded: at or after its end, and never before earlier
    /// records.
    pub recorded_at: u64,
    /// Activity of the thread.
    pub activity: Activity,
}

/// Sorts intervals of one thread so that each contains the next.
///
/// Among equal intervals the later one is the outer: a call is recorded after the calls that it
/// made.
pub fn nest(intervals: &mut [Interval]) {
    intervals.reverse();
    intervals.sort_by_key(|interval| (interval.start, u64::MAX - interval.end));
}

/// Limit of the stack depth; deeper calls count for the call above them. It bounds the time of one
/// walk.
const DEPTH: usize = 512;

/// Walks through the time of one thread from `from` to `to`, with the stack of each piece of time.
///
/// The outermost activity comes first. `intervals` must be in the order of recording; the function
/// sorts them. Blocked time within a wait belongs to the wait.
pub fn walk_stacks(intervals: &mut [Interval], from: u64, to: u64, mut visit: impl FnMut(&[Activity], u64, u64)) {
    nest(intervals);
    let mut stack: Vec<Activity> = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    let mut now = from;
    let mut pass = |stack: &[Activity], now: &mut u64, until: u64| {
        let until = until.min(to);
        if until > *now {
            visit(stack, *now, until);
            *now = until;
        }
    };
    for interval in intervals.iter() {
        if interval.end <= from || interval.start >= to || interval.end <= interval.start {
            continue;
        }
        while let Some(end) = ends.last().copied().filter(|end| *end <= interval.start) {
            pass(&stack, &mut now, end);
            stack.pop();
            ends.pop();
        }
        let blocked = interval.activity == Activity::Off(OffCpu::Blocked);
        if stack.len() >= DEPTH || blocked && stack.iter().any(|activity| matches!(activity, Activity::Wait { .. })) {
            continue;
        }
        pass(&stack, &mut now, interval.start);
        let call = matches!(interval.activity, Activity::Call { .. });
        // A call that begins while the thread is off its CPU, or waits, began a tick later than the
        // clock shows: it surrounds that activity.
        let mut index = stack.len();
        while call && index > 0 && stack[index - 1].is_leaf() && ends[index - 1] < interval.end {
            index -= 1;
        }
        // The end is cut to the surrounding interval: clocks of different sources differ by a tick.
        let end = if index == 0 { interval.end } else { interval.end.min(ends[index - 1]) };
        stack.insert(index, interval.activity);
        ends.insert(index, end);
    }
    while let Some(end) = ends.pop() {
        pass(&stack, &mut now, end);
        stack.pop();
    }
    pass(&stack, &mut now, to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(function: u64, start: u64, end: u64) -> Interval {
        Interval { start, end, recorded_at: end, activity: Activity::Call { function, caller: 0 } }
    }

    fn walked(mut intervals: Vec<Interval>, from: u64, to: u64) -> Vec<(Vec<u64>, u64, u64)> {
        let mut pieces = Vec::new();
        walk_stacks(&mut intervals, from, to, |stack, from, to| {
            let name = |activity: &Activity| match activity {
                Activity::Call { function, .. } => *function,
                Activity::Wait { .. } => 100,
                Activity::Off(_) => 200,
            };
            pieces.push((stack.iter().map(name).collect(), from, to));
        });
        pieces
    }

    #[test]
    fn calls_become_a_stack() {
        let intervals = vec![call(3, 20, 30), call(2, 10, 40), call(4, 50, 60), call(1, 0, 100)];
        assert_eq!(
            walked(intervals, 5, 55),
            [
                (vec![1], 5, 10),
                (vec![1, 2], 10, 20),
                (vec![1, 2, 3], 20, 30),
                (vec![1, 2], 30, 40),
                (vec![1], 40, 50),
                (vec![1, 4], 50, 55),
            ]
        );
    }

    #[test]
    fn of_equal_intervals_the_later_is_the_outer() {
        assert_eq!(walked(vec![call(2, 10, 20), call(1, 10, 20)], 0, 20), [(vec![], 0, 10), (vec![1, 2], 10, 20)]);
    }

    #[test]
    fn time_blocked_during_a_wait_counts_as_waiting() {
        let wait = Activity::Wait { object: ObjectKind::Mutex, lock: 1, site: 1 };
        let at = |start, end, activity| Interval { start, end, recorded_at: end, activity };
        let off = |reason| Activity::Off(reason);
        let intervals = vec![at(12, 18, off(OffCpu::Blocked)), at(18, 20, off(OffCpu::Runnable)), at(10, 20, wait)];
        assert_eq!(walked(intervals, 10, 20), [(vec![100], 10, 18), (vec![100, 200], 18, 20)]);
    }

    #[test]
    fn a_call_that_starts_during_off_cpu_time_encloses_it() {
        let off = Interval { start: 5, end: 20, recorded_at: 20, activity: Activity::Off(OffCpu::Runnable) };
        assert_eq!(
            walked(vec![off, call(2, 10, 40), call(1, 0, 50)], 0, 50),
            [
                (vec![1], 0, 5),
                (vec![1, 200], 5, 10),
                (vec![1, 2, 200], 10, 20),
                (vec![1, 2], 20, 40),
                (vec![1], 40, 50),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_instant_is_visited_once(raw in prop::collection::vec((0_u64..100, 0_u64..60), 0..40), from in 0_u64..50, length in 1_u64..100) {
            let intervals = raw.iter().enumerate().map(|(id, (start, length))| call(id as u64, *start, start + length));
            let pieces = walked(intervals.collect(), from, from + length);
            let mut now = from;
            for (_, start, end) in &pieces {
                prop_assert_eq!(*start, now);
                prop_assert!(end > start);
                now = *end;
            }
            prop_assert_eq!(now, from + length);
        }
    }
}
