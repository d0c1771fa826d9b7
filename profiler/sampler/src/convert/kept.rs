//! The records around slow requests, given to the converter when a request turns out to be slow.
//!
//! Does not decide which requests are slow (`keep`).

use std::collections::{BTreeMap, VecDeque};

use super::item::Item;
use super::keep::{KeepRing, KeepSlow};
use crate::record::{LeaveReason, RecordKind, Stack};

/// How long records wait for the end of a request, in nanoseconds. With little memory it is less.
const HOLD: u64 = 10_000_000_000;
/// Bytes of a record without its stack.
const RECORD: usize = 128;
/// Limit of threads whose state is remembered.
const THREADS: usize = 1 << 17;

/// What the converter does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Converts an item.
    Convert(u64, Item),
    /// Records are dropped from this time on.
    Pause(u64),
}

/// Records that wait, and what is known of threads whose records were dropped.
#[derive(Debug)]
pub(super) struct Kept {
    ring: KeepRing<Item>,
    /// Threads off their CPU, with what was told when they left it.
    away: BTreeMap<u32, (LeaveReason, Option<Stack>)>,
    /// Records are being converted, and not dropped.
    is_keeping: bool,
    steps: VecDeque<Step>,
}

impl Kept {
    pub(super) fn new(config: KeepSlow) -> Kept {
        Kept { ring: KeepRing::new(config), away: BTreeMap::new(), is_keeping: false, steps: VecDeque::new() }
    }

    /// Takes an item, in the order of time.
    pub(super) fn hold(&mut self, time: u64, item: Item) {
        let mut item = item;
        match &mut item {
            Item::Record(_, RecordKind::RequestResumed { id }) => self.ring.started(*id, time),
            Item::Record(_, RecordKind::RequestEnded { id }) => {
                if let Some(start) = self.ring.ended(*id) {
                    self.ring.request(*id, start, time, true);
                }
            }
            Item::Record(_, RecordKind::Request { id, start, is_slow, .. }) => {
                self.ring.request(*id, *start, time, *is_slow);
                *is_slow &= time.saturating_sub(*start) >= self.ring.threshold();
            }
            Item::Totals(totals, _) => {
                let threshold = self.ring.threshold();
                self.ring.count(totals);
                // Until now each request above both was kept.
                totals.threshold = totals.threshold.max(threshold);
            }
            _ => {}
        }
        let frames = match &item {
            Item::Record(_, RecordKind::Sample { stack } | RecordKind::SwitchedOut { stack: Some(stack), .. }) => {
                stack.len()
            }
            _ => 0,
        };
        self.ring.push(time, RECORD + 8 * frames, item);
    }

    /// Returns the next step for records that have waited until `now`, which is the latest time; at
    /// the end of the recording it is `u64::MAX`.
    pub(super) fn next(&mut self, now: u64) -> Option<Step> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        let until = if now == u64::MAX { now } else { now.saturating_sub(HOLD) };
        while let Some((time, is_kept, item)) = self.ring.pop(until) {
            if is_kept != self.is_keeping {
                self.is_keeping = is_kept;
                if is_kept { self.resume(time) } else { self.steps.push_back(Step::Pause(time)) }
            }
            self.remember(&item);
            if is_kept && self.is_wanted(&item) || describes(&item) {
                self.steps.push_back(Step::Convert(time, item));
            }
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
        }
        None
    }

    /// Threads that left their CPU while records were dropped are off it.
    fn resume(&mut self, time: u64) {
        for (thread, (reason, stack)) in &self.away {
            let kind = RecordKind::SwitchedOut { reason: *reason, stack: stack.clone() };
            self.steps.push_back(Step::Convert(time, Item::Record(*thread, kind)));
        }
    }

    fn remember(&mut self, item: &Item) {
        match item {
            Item::Record(thread, RecordKind::SwitchedOut { reason, stack }) if self.away.len() < THREADS => {
                self.away.insert(*thread, (*reason, stack.clone()));
            }
            Item::Record(thread, RecordKind::SwitchedIn { .. } | RecordKind::Sample { .. } | RecordKind::Ended) => {
                self.away.remove(thread);
            }
            Item::Record(_, RecordKind::Executed) | Item::Pause => self.away.clear(),
            _ => {}
        }
    }

    /// Of other requests in the same time nothing is written: their begin may have been dropped.
    fn is_wanted(&mut self, item: &Item) -> bool {
        let Item::Record(_, kind) = item else { return true };
        match kind {
            RecordKind::RequestResumed { id }
            | RecordKind::RequestSuspended { id }
            | RecordKind::RequestLabelled { id, .. } => self.ring.is_kept(*id),
            RecordKind::RequestEnded { id } | RecordKind::Request { id, .. } => {
                let is_kept = self.ring.is_kept(*id);
                self.ring.forget(*id);
                is_kept
            }
            _ => true,
        }
    }
}

/// Returns whether an item describes the process, and is never dropped.
fn describes(item: &Item) -> bool {
    matches!(
        item,
        Item::Totals(..)
            | Item::Record(
                _,
                RecordKind::Named { .. }
                    | RecordKind::Ended
                    | RecordKind::Executed
                    | RecordKind::Mapped(_)
                    | RecordKind::Lost { .. }
            )
    )
}
