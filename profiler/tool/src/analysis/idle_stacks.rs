//! Stacks in which threads wait for work, learnt from the wait right before each request.
//!
//! A thread that waits there during a request does nothing for it: the request awaits something
//! else. Only stacks of switches are exact enough. Does not contain names of event loops.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::activity::Activity;
use crate::format::event::OffCpu;
use crate::hash::{Map, Set};

/// Limits of distinguished stacks, and of functions of all of them.
const STACKS: usize = 1 << 12;
const FUNCTIONS: usize = 1 << 18;
/// One of so many requests must begin after a wait with the stack. Otherwise the thread waited for
/// something else by chance, such as in the request before, and found work when it came back.
const LEAST_SHARE: u64 = 20;
/// And so many at least: of the first few requests, one is a great share.
const LEAST: u64 = 5;

/// Stacks of the waits before requests, and functions of a scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleStacks {
    scheduler: Set<u64>,
    counts: Map<u64, u64>,
    requests: u64,
    /// Functions, each with a stack that it is in.
    in_stacks: Set<(u64, u64)>,
    /// Those that are in a frequent stack.
    functions: Set<u64>,
}

impl IdleStacks {
    /// Learns the stack of a wait right before a request that stands for `weight` requests. It is
    /// empty if there was none.
    pub(super) fn learn(&mut self, stack: &[Activity], weight: u64) {
        self.requests = self.requests.saturating_add(weight);
        self.learn_more(stack, weight);
    }

    /// Learns the stack of another wait right before work on a request that [`IdleStacks::learn`]
    /// has counted.
    pub(super) fn learn_more(&mut self, stack: &[Activity], weight: u64) {
        let Some(key) = key(stack) else { return };
        if self.counts.len() >= STACKS && !self.counts.contains_key(&key) {
            return;
        }
        let count = self.counts.entry(key).or_default();
        if *count == 0 && self.in_stacks.len() < FUNCTIONS {
            self.in_stacks.extend(stack.iter().filter_map(function).map(|function| (function, key)));
        }
        *count = count.saturating_add(weight);
    }

    /// Returns them with the functions of the stacks that are frequent now that all are known.
    pub(super) fn settled(mut self) -> IdleStacks {
        let in_stacks = std::mem::take(&mut self.in_stacks);
        self.functions =
            in_stacks.into_iter().filter(|(_, key)| self.is_frequent(*key)).map(|(function, _)| function).collect();
        self
    }

    /// Adds a function of a scheduler without a task for the thread: a thread that blocks in it, or
    /// in what it calls, waits for work.
    pub(super) fn add_scheduler(&mut self, function: u64) {
        self.scheduler.insert(function);
    }

    /// Returns whether there are functions of a scheduler.
    pub(super) fn has_scheduler(&self) -> bool {
        !self.scheduler.is_empty()
    }

    /// Returns whether a thread with this stack waits for work.
    pub(super) fn contains(&self, stack: &[Activity]) -> bool {
        let Some(key) = key(stack) else { return false };
        self.is_frequent(key)
            || self.has_scheduler() && stack.iter().filter_map(function).any(|called| self.scheduler.contains(&called))
    }

    /// Returns whether the function, or one that it calls, waits for work.
    pub(super) fn calls_wait(&self, function: u64) -> bool {
        self.functions.contains(&function)
    }

    fn is_frequent(&self, key: u64) -> bool {
        self.counts.get(&key).is_some_and(|count| *count >= LEAST && count.saturating_mul(LEAST_SHARE) >= self.requests)
    }
}

fn function(activity: &Activity) -> Option<u64> {
    match activity {
        Activity::Call { function, .. } => Some(*function),
        _ => None,
    }
}

/// Returns a key of the functions of a blocked stack; `None` for another stack.
fn key(stack: &[Activity]) -> Option<u64> {
    let (Activity::Off(OffCpu::Blocked), calls) = stack.split_last()? else { return None };
    let mut hasher = FxHasher::default();
    let mut functions = calls.iter().filter_map(function).peekable();
    functions.peek()?;
    functions.for_each(|function| function.hash(&mut hasher));
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(functions: &[u64]) -> Vec<Activity> {
        let calls = functions.iter().map(|function| Activity::Call { function: *function, caller: 0 });
        calls.chain([Activity::Off(OffCpu::Blocked)]).collect()
    }

    #[test]
    fn the_usual_stack_before_requests_is_idle() {
        let mut idle = IdleStacks::default();
        (0..30).for_each(|_| idle.learn(&[], 1));
        idle.learn(&blocked(&[1, 5]), 1);
        assert!(!idle.contains(&blocked(&[1, 5])) && !idle.calls_wait(5), "before one request in thirty");
        (0..100).for_each(|_| idle.learn(&blocked(&[1, 2]), 1));
        idle.learn(&blocked(&[1, 3]), 1);
        let idle = idle.settled();
        assert!(idle.contains(&blocked(&[1, 2])) && !idle.contains(&blocked(&[1, 3])));
        assert!(!idle.contains(&blocked(&[1, 4, 2])), "the same wait in another call");
        assert!(idle.calls_wait(1) && idle.calls_wait(2) && !idle.calls_wait(3));
    }

    #[test]
    fn functions_of_a_stack_that_is_frequent_only_at_first_do_not_wait_for_work() {
        let mut idle = IdleStacks::default();
        (0..10).for_each(|_| idle.learn(&blocked(&[1, 5]), 1));
        (0..1000).for_each(|_| idle.learn(&blocked(&[1, 2]), 1));
        let idle = idle.settled();
        assert!(!idle.contains(&blocked(&[1, 5])) && !idle.calls_wait(5));
        assert!(idle.contains(&blocked(&[1, 2])) && idle.calls_wait(1) && idle.calls_wait(2));
    }

    #[test]
    fn a_thread_that_blocks_in_its_scheduler_is_idle() {
        let mut idle = IdleStacks::default();
        assert!(!idle.has_scheduler());
        idle.add_scheduler(7);
        assert!(idle.contains(&blocked(&[1, 7, 9])) && !idle.contains(&blocked(&[1, 9])));
        assert!(!idle.contains(&blocked(&[7])[..1]), "it runs");
    }

    #[test]
    fn a_wait_without_calls_and_a_running_thread_are_not_idle() {
        let mut idle = IdleStacks::default();
        idle.learn(&blocked(&[]), 1);
        idle.learn(&[Activity::Call { function: 1, caller: 0 }, Activity::Off(OffCpu::Runnable)], 1);
        let idle = idle.settled();
        assert!(!idle.contains(&blocked(&[])) && !idle.calls_wait(1));
    }
}
