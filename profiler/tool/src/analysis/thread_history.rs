//! The recent past of one thread: its calls, its waits, and its times away from a CPU.
//!
//! Does not know requests or other threads.

use std::collections::VecDeque;

use super::activity::{Activity, Interval, walk_stacks};
use super::clock_gaps::ClockGaps;
use crate::format::event::OffCpu;
use crate::format::{Event, EventKind};

/// Limit of remembered blocked spans, wake-ups and requests per thread.
const REMEMBERED: usize = 64;
/// A thread that is on a CPU for more than such a share of its life is no helper, in per cent: it
/// would be busy in any wait.
const HELPER_BUSY: u64 = 40;

/// Recent past of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadHistory {
    /// Intervals in the order of recording.
    pub(crate) intervals: VecDeque<Interval>,
    off_cpu: Option<(u64, OffCpu)>,
    /// Recent blocked spans: start, end.
    blocked: VecDeque<(u64, u64)>,
    /// Recent wake-ups by threads of the program: time, and the waker's id.
    wakers: VecDeque<(u64, u32)>,
    /// Recent times at which it began or ended a request.
    requests: VecDeque<u64>,
    /// Recent spans of work on requests that have ended: start, end.
    worked: VecDeque<(u64, u64)>,
    /// End of the first of them.
    first_worked: Option<u64>,
    /// It began requests.
    serves: bool,
    /// It was in a function that waits for work.
    pub(super) waits_for_work: bool,
    /// When it first left its CPU, and its blocked time since then.
    since: Option<u64>,
    blocked_total: u64,
}

impl ThreadHistory {
    /// Adds an event's activity, if the event implies one.
    pub(crate) fn add_event(&mut self, event: &Event, gaps: &ClockGaps) {
        let now = event.time;
        match event.kind {
            EventKind::Call { function, caller, duration, .. } => {
                let start = self.begin(now.saturating_sub(duration), now, gaps);
                self.push(start, now, now, Activity::Call { function, caller });
            }
            EventKind::Held { object, lock, site, wait, hold } if wait > 0 => {
                let taken = now.saturating_sub(hold);
                self.push(taken.saturating_sub(wait), taken, now, Activity::Wait { object, lock, site });
            }
            EventKind::Waited { object, lock, site, wait } | EventKind::Acquired { object, lock, site, wait }
                if wait > 0 =>
            {
                self.push(now.saturating_sub(wait), now, now, Activity::Wait { object, lock, site });
            }
            EventKind::SwitchedOut { reason: why, .. } => {
                self.off_cpu = Some((now, why));
                self.since.get_or_insert(now);
            }
            EventKind::RequestStart { .. } => {
                self.serves = true;
                remember(&mut self.requests, now);
            }
            EventKind::RequestEnd { .. } => remember(&mut self.requests, now),
            EventKind::Woken { waker } => {
                if waker != 0 {
                    remember(&mut self.wakers, (now, waker));
                }
                if let Some((since, OffCpu::Blocked)) = self.off_cpu {
                    self.add_off(since, now, OffCpu::Blocked);
                    self.off_cpu = Some((now, OffCpu::Runnable));
                }
            }
            EventKind::SwitchedIn { .. } => {
                if let Some((since, why)) = self.off_cpu.take() {
                    self.add_off(since, now, why);
                }
            }
            _ => {}
        }
    }

    fn add_off(&mut self, since: u64, now: u64, why: OffCpu) {
        self.push(since, now, now, Activity::Off(why));
        if why == OffCpu::Blocked {
            remember(&mut self.blocked, (since, now));
            self.blocked_total += now.saturating_sub(since);
        }
    }

    /// Returns the start of a call that seems to begin at `start`.
    ///
    /// If the clock was stopped then, and the thread blocked meanwhile, the call counts from the
    /// thread's return: otherwise the blocking would be attributed to a function that started
    /// later.
    fn begin(&self, start: u64, end: u64, gaps: &ClockGaps) -> u64 {
        let mut later = self.blocked.iter().rev().take_while(|(_, until)| *until > start).peekable();
        if later.peek().is_none() {
            return start;
        }
        let latest = start.saturating_add(gaps.uncertainty(start)).min(end);
        later.find(|(from, until)| *from >= start && *until <= latest).map_or(start, |(_, until)| *until)
    }

    /// Returns the time since which the thread is off the CPU, and the reason.
    pub(crate) fn off_cpu(&self) -> Option<(u64, OffCpu)> {
        self.off_cpu
    }

    fn push(&mut self, start: u64, end: u64, seen: u64, activity: Activity) {
        if end > start {
            self.intervals.push_back(Interval { start, end, recorded_at: seen, activity });
        }
    }

    /// Returns the index of the first interval that was recorded after `from`.
    ///
    /// Queries concern recent times, so the search starts at the end: the middle of a long history
    /// is not in the cache.
    fn first_recorded_after(&self, from: u64) -> usize {
        let count = self.intervals.len();
        let mut back = 16;
        while back < count && self.intervals[count - back].recorded_at > from {
            back *= 2;
        }
        let (mut low, mut high) = (count.saturating_sub(back), count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.intervals[middle].recorded_at <= from { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns whether the thread could help a request: it has none, worked meanwhile, and rested
    /// for most of its life.
    pub(super) fn may_help(&self, start: u64, end: u64) -> bool {
        let life = self.since.map_or(0, |since| end.saturating_sub(since));
        let rests = self.off_cpu.filter(|(_, why)| *why == OffCpu::Blocked).map_or(end, |(since, _)| since);
        let blocked = self.blocked_total + end.saturating_sub(rests);
        !self.serves && rests > start && life.saturating_sub(blocked) * 100 <= life * HELPER_BUSY
    }

    /// Returns whether the thread has begun no request so far.
    pub(super) fn serves_none(&self) -> bool {
        !self.serves
    }

    /// Returns whether the thread began or ended a request between two times.
    pub(super) fn has_requests_between(&self, from: u64, to: u64) -> bool {
        self.requests.iter().any(|time| (from..=to).contains(time))
    }

    /// Remembers work on a request that has ended.
    pub(super) fn add_work(&mut self, start: u64, end: u64) {
        remember(&mut self.worked, (start, end));
        self.first_worked.get_or_insert(end);
    }

    /// Returns whether the thread had worked on a request before a time.
    pub(super) fn has_worked_before(&self, time: u64) -> bool {
        self.first_worked.is_some_and(|first| first <= time)
    }

    /// Returns whether a wait was a part of work that ended between the wait and `time`.
    pub(super) fn is_of_work_before(&self, (from, to): (u64, u64), time: u64) -> bool {
        self.worked.iter().any(|(start, end)| *start <= from && (to..=time).contains(end))
    }

    /// Returns the ids of the program's threads that woke this one between two times.
    pub(super) fn wakers_between(&self, from: u64, to: u64) -> impl Iterator<Item = u32> {
        self.wakers.iter().filter(move |(time, _)| (from..=to).contains(time)).map(|(_, waker)| *waker)
    }

    /// Returns the stack of the latest wait for which the condition is true; empty without one.
    pub(super) fn wait_before(&self, is_meant: impl Fn((u64, u64)) -> bool) -> Vec<Activity> {
        let mut waited = Vec::new();
        let Some((from, to)) = self.blocked.iter().rev().copied().find(|span| is_meant(*span)) else { return waited };
        walk_stacks(&mut self.between(from, to), from, to, |stack, _, _| {
            if stack.last() == Some(&Activity::Off(OffCpu::Blocked)) {
                waited = stack.to_vec();
            }
        });
        waited
    }

    /// Returns the intervals of the thread between two times.
    pub(super) fn between(&self, from: u64, to: u64) -> Vec<Interval> {
        let first = self.first_recorded_after(from);
        let later = self.intervals.range(first..);
        later.filter(|interval| interval.end > from && interval.start < to).copied().collect()
    }
}

/// Adds to a list whose length is limited.
fn remember<T>(recent: &mut VecDeque<T>, one: T) {
    if recent.len() >= REMEMBERED {
        recent.pop_front();
    }
    recent.push_back(one);
}
