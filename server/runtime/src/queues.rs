//! Run queues, one per core: first in, first out, each entry with its arrival time. Idle cores
//! steal the oldest.

use crate::sync::{AtomicU64, Mutex, Ordering, Padded, lock};
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// Time value of an empty queue.
const EMPTY: u64 = u64::MAX;

/// The run queues of all cores.
///
/// Each is a mutex around a plain queue. Uncontended it costs some ten nanoseconds, and owner and
/// thief meet only if the thief has no other work.
pub struct RunQueues<J> {
    cores: Vec<Padded<RunQueue<J>>>,
}

struct RunQueue<J> {
    jobs: Mutex<Jobs<J>>,
    /// Arrival time of the oldest entry; `EMPTY` without one. Written under the lock, read without.
    oldest: AtomicU64,
    /// Number of entries. Written under the lock, read without.
    waiting: AtomicU64,
}

struct Jobs<J> {
    waiting: VecDeque<(Time, J)>,
    /// Whether the queue is closed: its entries will never run.
    closed: bool,
}

impl<J> RunQueues<J> {
    /// Makes empty queues for each core.
    pub fn new(cores: usize) -> Self {
        let jobs = || Mutex::new(Jobs { waiting: VecDeque::new(), closed: false });
        let queue = || Padded(RunQueue { jobs: jobs(), oldest: AtomicU64::new(EMPTY), waiting: AtomicU64::new(0) });
        RunQueues { cores: (0..cores).map(|_| queue()).collect() }
    }

    /// Appends a job to `core`'s queue, from any thread. Returns whether it is the only one there.
    /// After [`RunQueues::close`] the job is dropped.
    pub fn push(&self, core: usize, now: Time, job: J) -> bool {
        let queue = &self.cores[core].0;
        let mut jobs = lock(&queue.jobs);
        if jobs.closed {
            // Without the lock: dropping a job may run code that calls this again.
            drop(jobs);
            return false;
        }
        let is_only = jobs.waiting.is_empty();
        if is_only {
            queue.oldest.store(now.0, Ordering::Relaxed);
        }
        jobs.waiting.push_back((now, job));
        queue.waiting.store(jobs.waiting.len() as u64, Ordering::Relaxed);
        is_only
    }

    /// Takes the oldest job of `core`'s queue, with its arrival time.
    pub fn pop(&self, core: usize) -> Option<(Time, J)> {
        let queue = &self.cores[core].0;
        // The owner sees its own pushes, so an empty queue needs no lock. A thief that sees too
        // little tries again. So does an owner when another thread has pushed: before it sleeps it
        // checks behind a fence (`parking`).
        if queue.oldest.load(Ordering::Relaxed) == EMPTY {
            return None;
        }
        let mut jobs = lock(&queue.jobs);
        let taken = jobs.waiting.pop_front();
        queue.oldest.store(jobs.waiting.front().map_or(EMPTY, |(since, _)| since.0), Ordering::Relaxed);
        queue.waiting.store(jobs.waiting.len() as u64, Ordering::Relaxed);
        taken
    }

    /// Takes the oldest job of the next core after `thief` that has one.
    pub fn steal(&self, thief: usize) -> Option<(Time, J)> {
        let cores = self.cores.len();
        (1..cores).find_map(|step| self.pop((thief + step) % cores))
    }

    /// Returns whether no core has a job. The answer may be outdated already.
    pub fn are_empty(&self) -> bool {
        self.cores.iter().all(|queue| queue.0.oldest.load(Ordering::Relaxed) == EMPTY)
    }

    /// Drops all jobs, and later ones when they are pushed, since no core runs any more. A job that
    /// refers to these queues, as a task does, would otherwise keep itself alive.
    pub fn close(&self) {
        for core in &self.cores {
            let mut jobs = lock(&core.0.jobs);
            jobs.closed = true;
            let waiting = std::mem::take(&mut jobs.waiting);
            core.0.oldest.store(EMPTY, Ordering::Relaxed);
            core.0.waiting.store(0, Ordering::Relaxed);
            drop(jobs);
            drop(waiting);
        }
    }

    /// Number of waiting jobs of all cores. The answer may be outdated already.
    pub fn waiting(&self) -> u64 {
        self.cores.iter().map(|queue| queue.0.waiting.load(Ordering::Relaxed)).sum()
    }

    /// Age of the oldest job of `core`; zero without one.
    pub fn age(&self, core: usize, now: Time) -> Nanos {
        let since = self.cores[core].0.oldest.load(Ordering::Relaxed);
        if since == EMPTY { Nanos::ZERO } else { now.since(Time(since)) }
    }

    /// Age of the oldest job of any core; zero without one.
    pub fn delay(&self, now: Time) -> Nanos {
        let oldest = self.cores.iter().map(|queue| queue.0.oldest.load(Ordering::Relaxed)).min();
        oldest.filter(|since| *since != EMPTY).map_or(Nanos::ZERO, |since| now.since(Time(since)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with plain queues: the same jobs in the same order, and the age of the oldest
        /// after every step.
        #[test]
        fn behaves_as_plain_queues(steps in prop::collection::vec((0u8..4, 0usize..3), 0..200)) {
            let queues = RunQueues::new(3);
            let mut model: Vec<VecDeque<(Time, u64)>> = vec![VecDeque::new(); 3];
            for (now, (step, core)) in steps.into_iter().enumerate() {
                let now = Time(now as u64);
                match step {
                    0 | 1 => {
                        prop_assert_eq!(queues.push(core, now, now.0), model[core].is_empty());
                        model[core].push_back((now, now.0));
                    }
                    2 => prop_assert_eq!(queues.pop(core), model[core].pop_front()),
                    _ => {
                        let victim = (1..3).map(|step| (core + step) % 3).find(|victim| !model[*victim].is_empty());
                        prop_assert_eq!(queues.steal(core), victim.and_then(|victim| model[victim].pop_front()));
                    }
                }
                let oldest = model.iter().filter_map(|queue| queue.front()).map(|(since, _)| *since).min();
                prop_assert_eq!(queues.delay(now), oldest.map_or(Nanos::ZERO, |since| now.since(since)));
                prop_assert_eq!(queues.are_empty(), oldest.is_none());
                prop_assert_eq!(queues.waiting(), model.iter().map(|queue| queue.len() as u64).sum::<u64>());
                let ages = (0..3).map(|core| queues.age(core, now)).max();
                prop_assert_eq!(ages, Some(queues.delay(now)));
            }
        }
    }

    #[test]
    fn a_closed_queue_holds_nothing() {
        let queues = RunQueues::new(2);
        let job = std::sync::Arc::new(());
        queues.push(0, Time(1), std::sync::Arc::clone(&job));
        queues.close();
        assert!(!queues.push(1, Time(2), std::sync::Arc::clone(&job)));
        assert!(queues.are_empty() && queues.pop(0).is_none() && queues.steal(0).is_none());
        assert_eq!(std::sync::Arc::strong_count(&job), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{sync::Arc, thread};

    #[test]
    fn an_owner_and_a_thief_share_each_job_once() {
        loom::model(|| {
            let queues = Arc::new(RunQueues::new(2));
            queues.push(0, Time(1), 1);
            let thief = Arc::clone(&queues);
            let thread = thread::spawn(move || thief.steal(1).into_iter().chain(thief.steal(1)).count());
            queues.push(0, Time(2), 2);
            let own = queues.pop(0).into_iter().chain(queues.pop(0)).count();
            let stolen = thread.join().unwrap();
            let left = queues.pop(0).into_iter().chain(queues.pop(0)).count();
            assert_eq!(own + stolen + left, 2);
            assert!(queues.are_empty());
            assert_eq!(queues.delay(Time(9)), Nanos::ZERO);
        });
    }

    /// An entry that is pushed while the queues close is dropped by one side or the other.
    #[test]
    fn nothing_stays_in_a_closed_queue() {
        loom::model(|| {
            let queues = Arc::new(RunQueues::new(1));
            let job = std::sync::Arc::new(());
            let (pusher, pushed) = (Arc::clone(&queues), std::sync::Arc::clone(&job));
            let thread = thread::spawn(move || pusher.push(0, Time(1), pushed));
            queues.close();
            thread.join().unwrap();
            assert!(queues.are_empty());
            assert_eq!(std::sync::Arc::strong_count(&job), 1);
        });
    }
}
