//! Locations of a trace's events, in a list of bounded length, and counts by kind.

use serde::Serialize;

use crate::format::{Event, EventKind};

/// Limit of the list: 12 MB.
const MOST: usize = 1 << 18;

/// Consecutive blocks in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    /// Index of the segment.
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// The earliest start of anything, and the earliest and the latest time of an event.
    pub(super) earliest: u64,
    pub(super) first: u64,
    pub(super) latest: u64,
}

impl BlockRun {
    fn join(&mut self, next: &BlockRun) {
        self.bytes = next.offset + next.bytes - self.offset;
        self.events += next.events;
        self.earliest = self.earliest.min(next.earliest);
        self.first = self.first.min(next.first);
        self.latest = self.latest.max(next.latest);
    }
}

/// Adds a run; joins neighbours if there are too many.
pub(super) fn add(runs: &mut Vec<BlockRun>, run: BlockRun) {
    add_up_to(runs, run, MOST);
}

fn add_up_to(runs: &mut Vec<BlockRun>, run: BlockRun, most: usize) {
    runs.push(run);
    if runs.len() < most {
        return;
    }
    let mut joined: Vec<BlockRun> = Vec::with_capacity(most);
    let mut open = false;
    for run in runs.iter() {
        match joined.last_mut() {
            Some(last) if open && last.segment == run.segment => {
                last.join(run);
                open = false;
            }
            _ => {
                joined.push(*run);
                open = true;
            }
        }
    }
    // A segment has many runs when the limit is reached, so joining frees entries, except for
    // segments of one block.
    if joined.len() < runs.len() {
        *runs = joined;
    }
}

/// Counts of a trace's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCounts {
    /// All events.
    pub events: u64,
    /// Calls of functions.
    pub calls: u64,
    /// Locks that were held, taken or released.
    pub locks: u64,
    /// Waits that ended without a lock.
    pub waits: u64,
    /// Starts, blocks, ends and labels of requests.
    pub requests: u64,
    /// Scheduler events.
    pub scheduler: u64,
    /// Lost events.
    pub lost: u64,
    /// Bytes of event blocks.
    pub event_bytes: u64,
    /// The earliest start of anything, in nanoseconds of `CLOCK_MONOTONIC`.
    pub first: u64,
    /// The latest time.
    pub last: u64,
}

impl TraceCounts {
    pub(super) fn new() -> TraceCounts {
        TraceCounts { first: u64::MAX, ..TraceCounts::default() }
    }

    #[inline(always)]
    pub(super) fn count(&mut self, event: &Event) {
        self.events += 1;
        match event.kind {
            EventKind::Call { .. } => self.calls += 1,
            EventKind::Held { .. } | EventKind::Acquired { .. } | EventKind::Released { .. } => self.locks += 1,
            EventKind::Waited { .. } => self.waits += 1,
            EventKind::RequestStart { .. }
            | EventKind::RequestBlock { .. }
            | EventKind::RequestEnd { .. }
            | EventKind::RequestEndAll
            | EventKind::RequestLabel { .. }
            | EventKind::RequestContext { .. }
            | EventKind::RemoteCall { .. }
            | EventKind::RemoteAnswer { .. } => self.requests += 1,
            EventKind::Lost { count, .. } => self.lost = self.lost.saturating_add(count),
            _ => self.scheduler += 1,
        }
    }

    /// Adds the counts of another part of the trace.
    pub(super) fn add(&mut self, other: &TraceCounts) {
        self.events += other.events;
        self.calls += other.calls;
        self.locks += other.locks;
        self.waits += other.waits;
        self.requests += other.requests;
        self.scheduler += other.scheduler;
        self.lost = self.lost.saturating_add(other.lost);
        self.event_bytes += other.event_bytes;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// Returns the nanoseconds between `first` and `last`.
    pub fn span(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

/// Returns the start of an event.
#[inline(always)]
pub(crate) fn start_of(event: &Event) -> u64 {
    let reach = match event.kind {
        EventKind::Call { duration, .. } => duration,
        EventKind::Held { wait, hold, .. } => wait.saturating_add(hold),
        EventKind::Waited { wait, .. } | EventKind::Acquired { wait, .. } => wait,
        _ => 0,
    };
    event.time.saturating_sub(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_runs_stay_few_and_lose_no_bytes() {
        let mut runs = Vec::new();
        for index in 0..10_000_u64 {
            let time = index % 100;
            let segment = (index / 4000) as u32;
            let run = BlockRun {
                segment,
                offset: index * 10,
                bytes: 10,
                events: 1,
                earliest: time,
                first: time,
                latest: time,
            };
            add_up_to(&mut runs, run, 64);
            assert!(runs.len() < 64 + 3);
        }
        assert_eq!(runs.iter().map(|run| run.events).sum::<u64>(), 10_000);
        assert_eq!(runs.iter().map(|run| run.bytes).sum::<u64>(), 100_000);
    }
}
