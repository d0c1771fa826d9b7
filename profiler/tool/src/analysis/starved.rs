//! Awaits that end late because a runtime was starved: each of its threads was in a long call.
//!
//! A runtime learns that a socket or a timer is ready when one of its threads looks for events.
//! While tasks block all of them, the trace has the whole time as awaited, as if a service were
//! slow.
//!
//! All threads that serve requests count as one runtime. Does not contain what the threads did.

use super::activity::{Activity, Interval, walk_stacks};
use super::idle::is_idle;
use super::names::is_library;
use crate::hash::Set;

/// Shortest call in ns that keeps a thread from its runtime. Tasks should yield much sooner.
const LONG: u64 = 1_000_000;
/// Longest time before the end of an await that is looked at.
pub(super) const WINDOW: u64 = 10_000_000_000;
/// The await ends at most this part of the calls' time after them. Otherwise the threads looked for
/// events in vain meanwhile.
const PROMPT: u64 = 4;

/// Functions of threads that poll futures, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct PollingFunctions {
    idle: Set<u64>,
    of_program: Set<u64>,
}

impl PollingFunctions {
    /// Learns a function's name.
    pub(super) fn learn(&mut self, function: u64, name: &str) {
        if is_idle(name) {
            self.idle.insert(function);
        } else if !is_library(name) {
            self.of_program.insert(function);
        }
    }

    /// Returns whether the function waits for work.
    pub(super) fn is_idle(&self, function: u64) -> bool {
        self.idle.contains(&function)
    }

    /// Returns the spans in which a thread was in long calls of the program, in order.
    fn long_calls(&self, mut intervals: Vec<Interval>, from: u64, to: u64) -> Vec<(u64, u64)> {
        intervals.retain(|interval| match interval.activity {
            Activity::Call { function, .. } => {
                let is_long = interval.end - interval.start >= LONG;
                self.is_idle(function) || is_long && self.of_program.contains(&function)
            }
            _ => false,
        });
        let is_idle =
            |activity: &Activity| matches!(activity, Activity::Call { function, .. } if self.is_idle(*function));
        let mut spans: Vec<(u64, u64)> = Vec::new();
        walk_stacks(&mut intervals, from, to, |stack, from, to| {
            if stack.is_empty() || stack.iter().any(is_idle) {
                return;
            }
            match spans.last_mut().filter(|(_, end)| *end == from) {
                Some((_, end)) => *end = to,
                None => spans.push((from, to)),
            }
        });
        spans
    }

    /// Returns since when a runtime was starved until a future that awaited something from `from`
    /// to `to` was woken; `None` if it was not. `threads` are the intervals of its threads.
    pub(super) fn starved_since(
        &self,
        threads: impl IntoIterator<Item = Vec<Interval>>,
        from: u64,
        to: u64,
    ) -> Option<u64> {
        if to - from < LONG {
            return None;
        }
        let mut common = vec![(from, to)];
        for intervals in threads {
            common = intersection(&common, &self.long_calls(intervals, from, to));
            if common.is_empty() {
                break;
            }
        }
        let (start, end) = *common.last()?;
        (end - start >= LONG && (to - end).saturating_mul(PROMPT) <= end - start).then_some(start)
    }
}

/// Returns the spans that are in both lists; each is in order and without overlaps.
fn intersection(mut left: &[(u64, u64)], mut right: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut common = Vec::new();
    while let ([one, left_rest @ ..], [other, right_rest @ ..]) = (left, right) {
        let (start, end) = (one.0.max(other.0), one.1.min(other.1));
        if start < end {
            common.push((start, end));
        }
        (left, right) = if one.1 < other.1 { (left_rest, right) } else { (left, right_rest) };
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn call(function: u64, start: u64, end: u64) -> Interval {
        let activity = Activity::Call { function, caller: 0 };
        Interval { start: start * MS, end: end * MS, recorded_at: end * MS, activity }
    }

    #[test]
    fn a_runtime_is_starved_while_all_threads_are_in_long_calls_until_the_wake() {
        let mut functions = PollingFunctions::default();
        functions.learn(1, "<tokio::runtime::scheduler::multi_thread::park::Parker>::park");
        functions.learn(2, "app::flush_to_disk");
        functions.learn(3, "tokio::runtime::task::harness::poll_future");
        let since = |threads: &[&[Interval]]| {
            let threads = threads.iter().map(|intervals| intervals.to_vec());
            functions.starved_since(threads, 10 * MS, 40 * MS).map(|time| time / MS)
        };
        let blocked = [call(2, 12, 39), call(3, 12, 39)];
        assert_eq!(since(&[&blocked]), Some(12));
        assert_eq!(since(&[&blocked, &[call(2, 5, 45)]]), Some(12));
        assert_eq!(since(&[&blocked, &[call(1, 5, 20), call(2, 20, 45)]]), Some(20));
        // One of the threads waits for events.
        assert_eq!(since(&[&blocked, &[call(1, 5, 45)]]), None);
        assert_eq!(since(&[&blocked, &[call(1, 15, 38), call(2, 5, 45)]]), None);
        // The event came after the threads had looked for it.
        assert_eq!(since(&[&[call(2, 10, 20), call(1, 20, 40)]]), None);
        assert_eq!(since(&[&[call(3, 10, 40)]]), None, "a call of the runtime says nothing");
    }
}
