//! A queue of the caller's own behind the gate, such as that of a pool of threads: how long a
//! request will wait in it. Does not contain queues in front of the gate ([`crate::delay`]).
//!
//! The gate sees which requests wait and which begin, and takes them to begin in the order of
//! arrival: what arrived before one that begins waits for something else.

use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// Groups of waiting requests that are told apart.
const GROUPS: usize = 64;

/// The queue, as far as requests are reported to wait in it.
#[derive(Debug)]
pub(crate) struct CallerQueue {
    /// Requests that wait, in the order of arrival: when the first of a group arrived, and how many
    /// arrived within `step`.
    groups: VecDeque<(Time, u32)>,
    step: Nanos,
    /// Whether a request was reported to begin. A caller that reports none has no such queue.
    has_starts: bool,
    /// Requests that have begun and not ended. One that waits for a backend may occupy its thread.
    running: u32,
    /// How many run while others wait: the threads of a pool. Rises at once and falls slowly.
    saturated: f64,
    /// Whether `saturated` was learnt.
    is_learnt: bool,
    /// A request has ended while others waited, and none has begun since.
    is_handing_over: bool,
}

impl CallerQueue {
    /// An empty queue in front of about so many threads.
    pub(crate) fn new(objective: Nanos, workers: usize) -> Self {
        let groups = VecDeque::with_capacity(GROUPS);
        CallerQueue {
            groups,
            step: objective / 32,
            has_starts: false,
            running: 0,
            saturated: workers as f64,
            is_learnt: false,
            is_handing_over: false,
        }
    }

    /// Records a request that begins to wait, with its arrival at this machine. Returns the arrival
    /// that counts: no earlier than that of the latest group.
    pub(crate) fn enter(&mut self, arrival: Time) -> Time {
        let arrival = self.groups.back().map_or(arrival, |(first, _)| arrival.max(*first));
        match self.groups.back_mut() {
            Some((first, count)) if arrival.since(*first) < self.step => *count += 1,
            _ => {
                if self.groups.len() == GROUPS
                    && let Some((_, count)) = self.groups.remove(1)
                {
                    self.groups[0].1 += count;
                }
                self.groups.push_back((arrival, 1));
            }
        }
        arrival
    }

    /// Records that a waiting request begins.
    pub(crate) fn start(&mut self, arrival: Time) {
        while self.groups.get(1).is_some_and(|(first, _)| *first <= arrival) {
            self.groups.pop_front();
        }
        self.remove(arrival);
        (self.has_starts, self.running) = (true, self.running + 1);
        let is_handed_over = std::mem::take(&mut self.is_handing_over);
        if !self.groups.is_empty() {
            let running = f64::from(self.running);
            if running > self.saturated || is_handed_over && !self.is_learnt {
                self.saturated = running;
            } else if is_handed_over {
                // While threads wake up, fewer run than could.
                self.saturated += (running - self.saturated) / 8.0;
            }
            self.is_learnt |= is_handed_over;
        }
    }

    /// Records that a waiting request ends, and never began.
    pub(crate) fn remove(&mut self, arrival: Time) {
        let group = self.groups.iter().rposition(|(first, _)| *first <= arrival);
        if let Some((_, count)) = group.and_then(|index| self.groups.get_mut(index)) {
            *count -= 1;
            if *count == 0 {
                self.groups.retain(|(_, count)| *count > 0);
            }
        }
    }

    /// Records that a request ends that had begun.
    pub(crate) fn finish(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.is_handing_over |= !self.groups.is_empty();
    }

    /// Wait that a request has before it which arrives now; a thread works on each for `service`.
    pub(crate) fn delay(&self, now: Time, service: Nanos) -> Nanos {
        let Some((oldest, _)) = self.groups.front().filter(|_| self.has_starts) else { return Nanos::ZERO };
        // Threads are free, and what waits does not wait for them.
        if 2.0 * f64::from(self.running) < self.saturated {
            return Nanos::ZERO;
        }
        now.since(*oldest).max(service.scale(f64::from(self.waiting()) / self.saturated.max(1.0)))
    }

    fn waiting(&self) -> u32 {
        self.groups.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn us(us: u64) -> Time {
        Time(us * 1_000)
    }

    const NONE: Nanos = Nanos::ZERO;

    fn queue(workers: usize) -> CallerQueue {
        CallerQueue::new(Nanos::from_millis(1), workers)
    }

    fn enter(queue: &mut CallerQueue, count: u32, arrival: Time) {
        for _ in 0..count {
            queue.enter(arrival);
        }
    }

    #[test]
    fn the_delay_is_that_of_the_oldest_that_waits() {
        let mut queue = queue(1);
        for at in 0..4 {
            queue.enter(us(at * 100));
        }
        assert_eq!(queue.delay(us(500), NONE), NONE, "nobody says that requests begin");
        queue.start(us(0));
        assert_eq!(queue.delay(us(500), NONE), Nanos::from_micros(400));
        // The thread takes up no other one for long.
        assert_eq!(queue.delay(us(900), NONE), Nanos::from_micros(800));
        queue.remove(us(100));
        assert_eq!(queue.delay(us(900), NONE), Nanos::from_micros(700), "one gave up");
        queue.finish();
        queue.start(us(300));
        assert_eq!(queue.delay(us(5_000), NONE), NONE, "nobody waits for this thread");
    }

    #[test]
    fn the_work_that_waits_shows_a_flash_before_the_oldest_is_old() {
        let mut queue = queue(2);
        let service = Nanos::from_micros(300);
        for _ in 0..2 {
            queue.enter(us(0));
            queue.start(us(0));
        }
        enter(&mut queue, 40, us(10));
        assert_eq!(queue.delay(us(10), service), Nanos::from_micros(300 * 40 / 2));
    }

    #[test]
    fn what_waits_beside_free_threads_is_no_queue() {
        let mut queue = queue(4);
        // Fills the pool, with others behind.
        enter(&mut queue, 8, us(0));
        (0..4).for_each(|_| queue.start(us(0)));
        assert_eq!(queue.delay(us(50), NONE), Nanos::from_micros(50));
        (0..4).for_each(|_| queue.finish());
        assert_eq!(queue.delay(us(900_000), NONE), NONE, "requests that no thread is for");
        // Others overtake them: they are not counted as waiting any more.
        queue.enter(us(900_000));
        queue.start(us(900_000));
        assert_eq!(queue.groups.len(), 0);
    }

    #[test]
    fn the_pool_is_how_many_run_when_one_follows_another() {
        let mut queue = queue(16);
        enter(&mut queue, 400, us(0));
        // Sixteen threads, of which ten end.
        (0..16).for_each(|_| queue.start(us(0)));
        (0..10).for_each(|_| queue.finish());
        for _ in 0..60 {
            queue.finish();
            queue.start(us(0));
        }
        assert!((5.9..6.1).contains(&queue.saturated), "{}", queue.saturated);
        // Of a pool of one, the first request that follows another tells it.
        let mut queue = self::queue(16);
        enter(&mut queue, 3, us(0));
        queue.start(us(0));
        assert_eq!(queue.delay(us(900), NONE), NONE, "perhaps others are free");
        queue.finish();
        queue.start(us(0));
        assert_eq!(queue.delay(us(900), NONE), Nanos::from_micros(900));
    }

    #[test]
    fn bursts_to_a_pool_that_is_mostly_idle_make_no_queue() {
        let mut queue = queue(16);
        for burst in 0..200 {
            let at = us(burst * 100_000);
            enter(&mut queue, 4, at);
            (0..4).for_each(|_| queue.start(at));
            (0..4).for_each(|_| queue.finish());
        }
        assert_eq!(queue.saturated, 16.0);
        enter(&mut queue, 40, us(30_000_000));
        queue.start(us(30_000_000));
        assert_eq!(queue.delay(us(30_000_000), Nanos::from_millis(10)), NONE, "threads wake up");
    }

    #[test]
    fn arrivals_out_of_order_leave_nothing_behind() {
        let mut queue = queue(1);
        let arrivals: Vec<Time> = [100, 50, 5_000, 20, 4_000].iter().map(|at| queue.enter(us(*at))).collect();
        assert_eq!(queue.waiting(), 5);
        for arrival in arrivals {
            queue.remove(arrival);
        }
        assert!(queue.groups.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_no_request_is_lost() {
        let mut queue = queue(1);
        for at in 0..1_000 {
            queue.enter(us(at * 1_000));
        }
        assert_eq!((queue.groups.len(), queue.waiting()), (GROUPS, 1_000));
        (0..1_000).for_each(|at| queue.remove(us(at * 1_000)));
        assert!(queue.groups.is_empty());
        queue.remove(us(5));
    }
}
