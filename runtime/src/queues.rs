//! One run queue per core: first in, first out, each entry with the time it came. Idle cores steal the oldest.

use crate::sync::{AtomicU64, Mutex, Ordering, Padded, lock};
use leeward_control::units::{Nanos, Time};
use std::collections::VecDeque;

/// The time that stands for "empty".
const EMPTY: u64 = u64::MAX;

/// The run queues of all cores.
///
/// A mutex around a plain queue: uncontended it costs some ten nanoseconds, and the owner and a thief meet only when
/// the thief has nothing else to do.
pub struct RunQueues<J> {
    cores: Vec<Padded<RunQueue<J>>>,
}

struct RunQueue<J> {
    jobs: Mutex<VecDeque<(Time, J)>>,
    /// When the oldest entry came; `EMPTY` without one. Written under the lock, read without.
    oldest: AtomicU64,
}

impl<J> RunQueues<J> {
    /// Empty queues for so many cores.
    pub fn new(cores: usize) -> Self {
        let queue = || Padded(RunQueue { jobs: Mutex::new(VecDeque::new()), oldest: AtomicU64::new(EMPTY) });
        RunQueues { cores: (0..cores).map(|_| queue()).collect() }
    }

    /// Appends a job to `core`'s queue.
    pub fn push(&self, core: usize, now: Time, job: J) {
        let queue = &self.cores[core].0;
        let mut jobs = lock(&queue.jobs);
        if jobs.is_empty() {
            queue.oldest.store(now.0, Ordering::Relaxed);
        }
        jobs.push_back((now, job));
    }

    /// Takes the oldest job of `core`'s queue, and when it came.
    pub fn pop(&self, core: usize) -> Option<(Time, J)> {
        let queue = &self.cores[core].0;
        // The owner sees its own pushes, so an empty queue needs no lock; a thief that sees too little tries again.
        if queue.oldest.load(Ordering::Relaxed) == EMPTY {
            return None;
        }
        let mut jobs = lock(&queue.jobs);
        let taken = jobs.pop_front();
        queue.oldest.store(jobs.front().map_or(EMPTY, |(since, _)| since.0), Ordering::Relaxed);
        taken
    }

    /// Takes the oldest job of the next core after `thief` that has one.
    pub fn steal(&self, thief: usize) -> Option<(Time, J)> {
        let cores = self.cores.len();
        (1..cores).find_map(|step| self.pop((thief + step) % cores))
    }

    /// Whether no core has a job. True only of a moment that may be over.
    pub fn are_empty(&self) -> bool {
        self.cores.iter().all(|queue| queue.0.oldest.load(Ordering::Relaxed) == EMPTY)
    }

    /// Age of the oldest job of any core; zero if there is none.
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
        /// Against plain queues: the same jobs in the same order, and the age of the oldest after every step.
        #[test]
        fn behaves_as_plain_queues(steps in prop::collection::vec((0u8..4, 0usize..3), 0..200)) {
            let queues = RunQueues::new(3);
            let mut model: Vec<VecDeque<(Time, u64)>> = vec![VecDeque::new(); 3];
            for (now, (step, core)) in steps.into_iter().enumerate() {
                let now = Time(now as u64);
                match step {
                    0 | 1 => {
                        queues.push(core, now, now.0);
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
            }
        }
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
}
