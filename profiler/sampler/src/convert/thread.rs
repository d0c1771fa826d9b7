//! What the converter remembers of a thread.
//!
//! Does not contain the reconstruction of calls.

use std::collections::VecDeque;

use leeward_profile::format::meta::Thread;

use super::calls::ThreadCalls;

/// Limit of remembered switches, and of remembered requests.
const REMEMBERED: usize = 1 << 10;

/// A thread of the recorded process.
#[derive(Debug)]
pub(super) struct ThreadState {
    /// As the trace describes it.
    pub(super) thread: Thread,
    pub(super) calls: ThreadCalls,
    /// The CPU that it was last on.
    pub(super) cpu: u32,
    away: VecDeque<Away>,
    /// When it recently began requests, and when it answered some.
    begun: VecDeque<u64>,
    answered: VecDeque<u64>,
}

/// A time away from the CPU.
#[derive(Clone, Copy, Debug)]
struct Away {
    left: u64,
    until: Option<u64>,
    /// It waited for something else than a CPU.
    is_wait: bool,
}

impl ThreadState {
    pub(super) fn new(number: u32, tid: u32, time: u64) -> ThreadState {
        let thread = Thread { number, tid, started: None, ended: None, name: String::new() };
        ThreadState {
            thread,
            calls: ThreadCalls::new(time),
            cpu: 0,
            away: VecDeque::new(),
            begun: VecDeque::new(),
            answered: VecDeque::new(),
        }
    }

    /// The thread left its CPU.
    pub(super) fn left(&mut self, time: u64, preempted: bool) {
        remember(&mut self.away, Away { left: time, until: None, is_wait: !preempted });
    }

    /// The thread got a CPU.
    pub(super) fn returned(&mut self, time: u64) {
        match self.away.back_mut() {
            Some(Away { until: until @ None, .. }) => *until = Some(time),
            Some(_) => {}
            // It was away before the recording began.
            None => self.away.push_back(Away { left: 0, until: Some(time), is_wait: true }),
        }
    }

    /// The thread began a request.
    pub(super) fn begun(&mut self, time: u64) {
        remember(&mut self.begun, time);
    }

    /// The thread answered a request.
    pub(super) fn answered(&mut self, time: u64) {
        remember(&mut self.answered, time);
    }

    /// Returns when this thread has handed over a request that it began at `start` and another
    /// thread answered: it waits, or begins another one. A thread that loses its CPU does not.
    pub(super) fn handed_over(&self, start: u64) -> Option<u64> {
        let waits = self.away.iter().find(|away| away.is_wait && away.left > start).map(|away| away.left);
        let other = self.begun.iter().copied().find(|begun| *begun > start);
        waits.into_iter().chain(other).min()
    }

    /// Returns when this thread began to work on a request that it answered at `end`. Another
    /// thread began it at `start`, and had it until `given`.
    pub(super) fn taken_over(&self, start: u64, given: u64, end: u64) -> u64 {
        let free = self.answered.iter().rev().copied().find(|answered| *answered < end).unwrap_or(0).max(start);
        let mut returns = self.away.iter().rev().filter(|away| away.is_wait).filter_map(|away| away.until);
        let is_away = self.next_on(given) > given;
        let taken = match returns.find(|until| (free..=given).contains(until)) {
            // The other thread woke this one, and went on.
            Some(until) if !is_away => until,
            _ => self.next_on(free.max(given)),
        };
        taken.min(end)
    }

    /// Returns when the thread first was on a CPU at or after `time`.
    fn next_on(&self, time: u64) -> u64 {
        let around = self.away.iter().rev().find(|away| away.left <= time);
        around.and_then(|away| away.until).map_or(time, |until| time.max(until))
    }
}

fn remember<T>(recent: &mut VecDeque<T>, one: T) {
    if recent.len() >= REMEMBERED {
        recent.pop_front();
    }
    recent.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits from 10 to 20 and from 50 to 60, and loses its CPU from 30 to 40.
    fn thread() -> ThreadState {
        let mut thread = ThreadState::new(0, 7, 0);
        for (left, until, preempted) in [(10, 20, false), (30, 40, true), (50, 60, false)] {
            thread.left(left, preempted);
            thread.returned(until);
        }
        thread
    }

    #[test]
    fn a_thread_that_was_away_is_on_a_cpu_when_it_returns() {
        let mut thread = ThreadState::new(0, 7, 0);
        thread.returned(5);
        assert_eq!([3, 7].map(|time| thread.next_on(time)), [5, 7]);
        assert_eq!([12, 25, 35, 70].map(|time| self::thread().next_on(time)), [20, 25, 40, 70]);
    }

    #[test]
    fn a_thread_hands_over_when_it_waits_or_begins_another_request() {
        let mut thread = thread();
        assert_eq!([3, 10, 25, 50].map(|start| thread.handed_over(start)), [Some(10), Some(50), Some(50), None]);
        thread.begun(25);
        assert_eq!([3, 20, 25].map(|start| thread.handed_over(start)), [Some(10), Some(25), Some(50)]);
    }

    #[test]
    fn a_thread_takes_over_what_was_given_when_it_is_free() {
        let mut thread = thread();
        // It waited for work, and works from then on.
        assert_eq!(thread.taken_over(8, 12, 45), 20);
        // It was woken before the other thread waited itself.
        assert_eq!(thread.taken_over(8, 22, 45), 20);
        // The other thread had it for long: of the waits before, the last one was for it.
        assert_eq!(thread.taken_over(8, 61, 70), 60);
        // It answered another request first.
        thread.answered(25);
        assert_eq!(thread.taken_over(8, 12, 45), 25);
        assert_eq!(thread.taken_over(8, 12, 24), 20);
    }
}
