//! Sorts events by time in bounded memory.
//!
//! Blocks are nearly in order, so a time window covers few of them. A window with too many events
//! is halved, and its blocks are read again.

use super::runs::BlockRun;
use super::{ProgressCallback, Reader, Trace, TraceError, report_progress};
use crate::format::Event;

/// Limit of events in memory: below 100 MB.
pub(super) const WINDOW: usize = 1 << 20;

pub(super) fn in_order(
    trace: &Trace,
    most: usize,
    watch: &mut ProgressCallback<'_>,
    keep: impl Fn(&Event) -> bool,
    mut each: impl FnMut(&Event),
) -> Result<(), TraceError> {
    let mut runs: Vec<BlockRun> = trace.runs.clone();
    runs.sort_by_key(|run| (run.first, run.segment, run.offset));
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    let mut windows = Windows { reader: Reader::new(trace), most, events: Vec::new(), keys: Vec::new() };
    let (mut next, mut done, mut from) = (0, 0, 0);
    let mut active: Vec<BlockRun> = Vec::new();
    while next < runs.len() || !active.is_empty() {
        let mut events_left = (most / 2) as u64;
        while next < runs.len() && (active.is_empty() || runs[next].events <= events_left || runs[next].first <= from) {
            events_left = events_left.saturating_sub(runs[next].events);
            active.push(runs[next]);
            next += 1;
        }
        let to = runs.get(next).map(|run| run.first);
        // Events of equal times keep the order of the file.
        active.sort_by_key(|run| (run.segment, run.offset));
        windows.hand_out(&active, from, to, &keep, &mut each)?;
        let Some(to) = to else { break };
        active.retain(|run| {
            let remains = run.latest >= to;
            done += if remains { 0 } else { run.bytes };
            remains
        });
        from = to;
        report_progress(watch, done, total)?;
    }
    report_progress(watch, total, total)
}

struct Windows<'a> {
    reader: Reader<'a>,
    most: usize,
    events: Vec<Event>,
    /// Time, and index in `events`.
    keys: Vec<(u64, u32)>,
}

impl Windows<'_> {
    /// Passes the events of `runs` from `from` to before `to`, or to the end.
    fn hand_out(
        &mut self,
        runs: &[BlockRun],
        from: u64,
        to: Option<u64>,
        keep: &impl Fn(&Event) -> bool,
        each: &mut impl FnMut(&Event),
    ) -> Result<(), TraceError> {
        // The next window is the last entry.
        let mut rest = vec![(from, to)];
        while let Some((from, to)) = rest.pop() {
            let inside = |time: u64| time >= from && to.is_none_or(|to| time < to);
            self.events.clear();
            let mut too_many = false;
            for run in runs.iter().filter(|run| run.latest >= from && to.is_none_or(|to| run.first < to)) {
                let (events, most) = (&mut self.events, self.most);
                self.reader.read(run, |event| {
                    if inside(event.time) && keep(event) {
                        if events.len() < most {
                            events.push(*event);
                        } else {
                            too_many = true;
                        }
                    }
                })?;
                if too_many {
                    break;
                }
            }
            if !too_many {
                // Small keys instead of whole events reduce copying. Each block is sorted, so a
                // merge sort is fast.
                self.keys.clear();
                self.keys.extend((0..).zip(&self.events).map(|(index, event)| (event.time, index)));
                self.keys.sort_by_key(|(time, _)| *time);
                for (_, index) in &self.keys {
                    each(&self.events[*index as usize]);
                }
                continue;
            }
            let middle = self.events.len() / 2;
            let (_, median, _) = self.events.select_nth_unstable_by_key(middle, |event| event.time);
            let split = if median.time > from { median.time } else { from.saturating_add(1) };
            if to.is_some_and(|to| split >= to) || split == from {
                // All events have one time: the order of the file is the result.
                for run in runs {
                    self.reader.read(run, |event| {
                        if inside(event.time) && keep(event) {
                            each(event);
                        }
                    })?;
                }
                continue;
            }
            rest.push((split, to));
            rest.push((from, Some(split)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::EventKind;
    use crate::format::write::{TraceConfig, TraceWriter};
    use crate::trace::ignore_progress;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn events_in_any_order_on_disk_are_sorted_by_time(
            times in prop::collection::vec((0_u32..4, 0_u64..300), 0..400),
            flush in 1_usize..50,
            most in 4_usize..200,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = TraceWriter::create(folder.path(), &TraceConfig { segment_bytes: 900, ..TraceConfig::default() }).unwrap();
            for (index, (thread, time)) in times.iter().enumerate() {
                writer.event(*thread, *time, EventKind::RequestEnd { id: index as u64 }).unwrap();
                if index % flush == 0 {
                    writer.flush().unwrap();
                }
            }
            writer.finish(1000).unwrap();
            let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
            let mut sorted = Vec::new();
            in_order(&trace, most, &mut ignore_progress, |_| true, |event| sorted.push(*event)).unwrap();
            prop_assert_eq!(sorted.len(), times.len());
            prop_assert!(sorted.is_sorted_by_key(|event| event.time));
            // One thread's events with equal times keep their order.
            for thread in 0..4 {
                let is_of_thread = |event: &&Event| event.thread == thread;
                let ids = sorted.iter().filter(is_of_thread).map(|event| match event.kind {
                    EventKind::RequestEnd { id } => (event.time, id),
                    _ => unreachable!(),
                });
                prop_assert!(ids.collect::<Vec<_>>().is_sorted());
            }
        }
    }
}
