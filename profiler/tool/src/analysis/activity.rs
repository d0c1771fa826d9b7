//! Activities of a thread in an interval, and how intervals that contain each other become a stack over time.

use crate::format::ObjectKind;
use crate::format::event::OffCpu;

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// The thread was in a call of a function.
    Call {
        /// An address in the function.
        function: u64,
        /// Where the call came from.
        caller: u64,
    },
    /// The thread waited for a lock or the like.
    Wait {
        /// Kind of the object.
        object: ObjectKind,
        /// Its address.
        lock: u64,
        /// Where it waited.
        site: u64,
    },
    /// The thread was not on a CPU.
    Off(OffCpu),
}

impl Activity {
    /// Whether no call is made from it.
    pub fn is_leaf(&self) -> bool {
        !matches!(self, Activity::Call { .. })
    }
}

/// A thread did something from `start` to `end`, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When it began.
    pub start: u64,
    /// When it was over.
    pub end: u64,
    /// When it was written down: not before its end, and never before what was written down earlier.
    pub recorded_at: u64,
    /// Activity of the thread.
    pub activity: Activity,
}

/// Puts intervals of one thread into the order in which one contains the next. Of equal ones the later is the outer: a
/// call is written down after those it made.
pub fn nest(intervals: &mut [Interval]) {
    intervals.reverse();
    intervals.sort_by_key(|interval| (interval.start, u64::MAX - interval.end));
}

/// How deep a stack is followed; what is deeper counts to the call above. It bounds the time that one walk takes.
const DEPTH: usize = 512;

/// Walks through the time of one thread from `from` to `to`: for each piece of time, what it was doing, the outermost
/// first. `intervals` in the order of being written down; they are sorted.
///
/// Blocked time within a wait is the wait and not told apart.
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
        // A call that begins while the thread is off its CPU, or waits, began a tick later than the clock says: it is
        // around that, not within it.
        let mut place = stack.len();
        while call && place > 0 && stack[place - 1].is_leaf() && ends[place - 1] < interval.end {
            place -= 1;
        }
        // What reaches beyond the one around it is cut: clocks of different sources differ by a tick.
        let end = if place == 0 { interval.end } else { interval.end.min(ends[place - 1]) };
        stack.insert(place, interval.activity);
        ends.insert(place, end);
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
    fn of_equal_ones_the_later_is_outside() {
        assert_eq!(walked(vec![call(2, 10, 20), call(1, 10, 20)], 0, 20), [(vec![], 0, 10), (vec![1, 2], 10, 20)]);
    }

    #[test]
    fn blocked_while_waiting_is_waiting() {
        let wait = Activity::Wait { object: ObjectKind::Mutex, lock: 1, site: 1 };
        let at = |start, end, activity| Interval { start, end, recorded_at: end, activity };
        let off = |why| Activity::Off(why);
        let intervals = vec![at(12, 18, off(OffCpu::Blocked)), at(18, 20, off(OffCpu::Runnable)), at(10, 20, wait)];
        assert_eq!(walked(intervals, 10, 20), [(vec![100], 10, 18), (vec![100, 200], 18, 20)]);
    }

    #[test]
    fn a_call_that_seems_to_begin_off_the_cpu_is_around_it() {
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
        fn every_moment_is_visited_once(raw in prop::collection::vec((0_u64..100, 0_u64..60), 0..40), from in 0_u64..50, length in 1_u64..100) {
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
