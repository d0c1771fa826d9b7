//! What ran on a worker while a request was ready, but not polled.
//!
//! The worker is the thread that polled the request next. Its calls meanwhile belong to other
//! tasks, so they explain the request's wait.
//!
//! Does not contain the comparison of slow requests with others.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::activity::{Activity, walk_stacks};
use super::breakdown::Cause;
use super::follow::TraceHistory;
use super::idle::is_idle;
use super::locks::Hold;
use super::names::{is_library, without_parameters};
use super::requests::Request;
use crate::format::queue::Queue;
use crate::hash::Map;
use crate::symbols::Symbols;
use crate::trace::Trace;

/// Limit of distinguished stacks.
const STACKS: usize = 1 << 12;
/// Limit of the depth of stacks.
const DEPTH: usize = 64;
/// Number of functions that a path shows.
const PATH: usize = 6;

/// What a worker did while requests waited for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerActivity {
    /// The worker.
    pub thread: String,
    /// Functions of the program that it was in, the outermost first: a task, and what it calls.
    /// Empty outside of recorded calls.
    pub path: Vec<String>,
    /// What it did there, as in a finding's cause.
    pub doing: String,
    /// Share of the waiting, in per cent.
    pub share: f64,
}

/// Time of workers by thread, calls and cause.
#[derive(Debug, Default)]
pub(super) struct WorkerTimes {
    waited: u64,
    stacks: Map<(u32, Vec<u64>, Cause), (u64, u64)>,
    /// For waits of workers: the thread and place of the longest hold of the lock.
    holders: Map<Cause, Hold>,
}

impl WorkerTimes {
    /// Adds what workers did while this request was ready.
    pub(super) fn add(&mut self, request: &Request, history: &TraceHistory) {
        for (queue, from, to) in &request.queued {
            if Queue::from_event(*queue) != Queue::Ready {
                continue;
            }
            self.waited += to - from;
            let next = request.work.iter().filter(|work| work.start >= *to).min_by_key(|work| work.start);
            let Some(next) = next else { continue };
            let mut intervals = history.between(next.thread, *from, *to);
            for interval in &intervals {
                self.add_holders(&interval.activity, next.thread, (*from, *to), history);
            }
            walk_stacks(&mut intervals, *from, *to, |stack, from, to| {
                let calls = stack.iter().filter_map(|activity| match activity {
                    Activity::Call { function, .. } => Some(*function),
                    _ => None,
                });
                let key = (next.thread, calls.take(DEPTH).collect(), Cause::from_stack(stack));
                if self.stacks.len() < STACKS || self.stacks.contains_key(&key) {
                    let (nanos, time) = self.stacks.entry(key).or_default();
                    (*nanos, *time) = (*nanos + (to - from), to);
                }
            });
        }
    }

    /// Remembers the holder of a lock for which a worker waits.
    fn add_holders(&mut self, activity: &Activity, worker: u32, (from, to): (u64, u64), history: &TraceHistory) {
        let Activity::Wait { object, lock, site } = *activity else { return };
        let cause = Cause::Wait { object, site, lock };
        for hold in history.holders(lock, worker, from, to) {
            let length = |hold: &Hold| hold.end - hold.start;
            let is_longer = self.holders.get(&cause).is_none_or(|known| length(known) < length(&hold));
            if is_longer && (self.holders.len() < STACKS || self.holders.contains_key(&cause)) {
                self.holders.insert(cause, hold);
            }
        }
    }

    /// Returns the activities with most of the time.
    pub(super) fn activities(self, trace: &Trace, symbols: &mut Symbols) -> Vec<WorkerActivity> {
        let mut merged: BTreeMap<(String, Vec<String>, String), u64> = BTreeMap::new();
        for ((thread, calls, cause), (nanos, time)) in self.stacks {
            let names: Vec<String> =
                calls.iter().map(|function| symbols.location(*function, time).function()).collect();
            let doing = if names.iter().any(|name| is_idle(name)) {
                "asleep, and had to be woken".into()
            } else {
                let holder = self.holders.get(&cause).map(|hold| {
                    let place = symbols.site(hold.site, hold.end).describe();
                    format!(", held by {} in {place}", trace.thread_name(hold.thread))
                });
                cause.describe(symbols, time) + &holder.unwrap_or_default()
            };
            let own = names.iter().filter(|name| !is_library(name));
            let mut path: Vec<String> = own.map(|name| without_parameters(name)).collect();
            path.dedup();
            path.truncate(PATH);
            *merged.entry((trace.thread_name(thread), path, doing)).or_default() += nanos;
        }
        let waited = self.waited.max(1) as f64;
        let mut activities: Vec<(u64, WorkerActivity)> = merged
            .into_iter()
            .map(|((thread, path, doing), nanos)| {
                (nanos, WorkerActivity { thread, path, doing, share: (nanos as f64 * 100.0 / waited).min(100.0) })
            })
            .collect();
        activities.sort_by_key(|(nanos, _)| Reverse(*nanos));
        activities.into_iter().map(|(_, activity)| activity).take(5).collect()
    }
}

/// Describes the activities, as sentences behind a finding.
pub(super) fn describe(activities: &[WorkerActivity]) -> String {
    let mut text = String::new();
    for activity in activities.iter().take(2).filter(|activity| activity.share >= 5.0) {
        let WorkerActivity { thread, path, doing, share } = activity;
        text += &format!(" For {share:.0} % of that its worker {thread} ");
        text += &match path.is_empty() {
            true => format!("was {doing}."),
            false => format!("ran {} ({doing}).", path.join(" > ")),
        };
    }
    text
}
