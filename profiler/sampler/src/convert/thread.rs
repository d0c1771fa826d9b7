//! What the converter remembers of a thread.
//!
//! Does not contain the reconstruction of calls.

use std::collections::VecDeque;

use leeward_profile::format::meta::Thread;

use super::calls::ThreadCalls;

/// Limit of remembered switches.
const SWITCHES: usize = 1 << 10;

/// A thread of the recorded process.
#[derive(Debug)]
pub(super) struct ThreadState {
    /// As the trace describes it.
    pub(super) thread: Thread,
    pub(super) calls: ThreadCalls,
    /// The CPU that it was last on.
    pub(super) cpu: u32,
    /// Recent times away from the CPU: when it left, and when it returned.
    away: VecDeque<(u64, Option<u64>)>,
}

impl ThreadState {
    pub(super) fn new(number: u32, tid: u32, time: u64) -> ThreadState {
        let thread = Thread { number, tid, started: None, ended: None, name: String::new() };
        ThreadState { thread, calls: ThreadCalls::new(time), cpu: 0, away: VecDeque::new() }
    }

    /// The thread left its CPU.
    pub(super) fn left(&mut self, time: u64) {
        if self.away.len() >= SWITCHES {
            self.away.pop_front();
        }
        self.away.push_back((time, None));
    }

    /// The thread got a CPU.
    pub(super) fn returned(&mut self, time: u64) {
        match self.away.back_mut() {
            Some((_, until @ None)) => *until = Some(time),
            Some(_) => {}
            // It was away before the recording began.
            None => self.away.push_back((0, Some(time))),
        }
    }

    /// Returns when the thread first was on a CPU at or after `time`.
    pub(super) fn next_on(&self, time: u64) -> u64 {
        let around = self.away.iter().rev().find(|(left, _)| *left <= time);
        match around {
            Some((_, Some(until))) => time.max(*until),
            _ => time,
        }
    }

    /// Returns when the thread first left its CPU after `time`.
    pub(super) fn next_left(&self, time: u64) -> Option<u64> {
        self.away.iter().map(|(left, _)| *left).find(|left| *left > time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_away_takes_over_when_it_returns() {
        let mut thread = ThreadState::new(0, 7, 0);
        thread.returned(5);
        for (left, back) in [(10, 20), (30, 40)] {
            thread.left(left);
            thread.returned(back);
        }
        assert_eq!([3, 7, 12, 25, 35, 50].map(|time| thread.next_on(time)), [5, 7, 20, 25, 40, 50]);
        assert_eq!([3, 12, 30, 50].map(|time| thread.next_left(time)), [Some(10), Some(30), None, None]);
    }
}
