//! Timers of a core, by deadline. The core fires them; other threads may add and remove timers.

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::units::Time;
use std::collections::BTreeMap;
use std::task::Waker;

/// Maximum timers fired per check, so that many of them do not keep the core from its network.
const MAX_FIRED: usize = 64;

/// Position of a timer in the order. At equal deadlines, the first one set fires first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    deadline: Time,
    number: u64,
}

/// Result of setting a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOutcome {
    /// An earlier timer is set.
    Later,
    /// The timer is the first to fire. A thread that sleeps until the former first one must be
    /// woken.
    First,
    /// The queue is closed; its timers no longer fire.
    Closed,
}

/// A sorted map under a mutex. Removing a timer leaves nothing behind, so the map is as large as
/// the number of live sleeps. Setting and removing a timer cost some 150 ns together when there are
/// few, and about half a microsecond among ten thousand. That is less than the leftovers of a timer
/// wheel would cost.
pub(crate) struct TimerQueue {
    entries: Mutex<Entries>,
    /// The earliest deadline, [`Time::NEVER`] without one. Written under the lock, read without.
    next: AtomicU64,
}

struct Entries {
    waiting: BTreeMap<TimerKey, Waker>,
    numbers: u64,
    closed: bool,
}

impl TimerQueue {
    pub(crate) fn new() -> Self {
        let entries = Entries { waiting: BTreeMap::new(), numbers: 0, closed: false };
        TimerQueue { entries: Mutex::new(entries), next: AtomicU64::new(Time::NEVER.0) }
    }

    /// Registers `waker` for `deadline`. `key` is the timer's, if it was set before.
    pub(crate) fn set(&self, key: &mut Option<TimerKey>, deadline: Time, waker: &Waker) -> SetOutcome {
        let mut entries = lock(&self.entries);
        if entries.closed {
            return SetOutcome::Closed;
        }
        let key = *key.get_or_insert_with(|| {
            entries.numbers += 1;
            TimerKey { deadline, number: entries.numbers }
        });
        let old = match entries.waiting.get_mut(&key) {
            Some(present) if present.will_wake(waker) => return SetOutcome::Later,
            // The core knows this deadline already.
            Some(present) => Some(std::mem::replace(present, waker.clone())),
            None => entries.waiting.insert(key, waker.clone()),
        };
        let first = self.publish(&entries);
        drop(entries);
        // Without the lock, as everywhere below: dropping a waker may run code that calls this
        // again.
        drop(old);
        if first { SetOutcome::First } else { SetOutcome::Later }
    }

    /// Removes a timer; a fired one is gone already.
    pub(crate) fn clear(&self, key: TimerKey) {
        let mut entries = lock(&self.entries);
        let waker = entries.waiting.remove(&key);
        self.publish(&entries);
        drop(entries);
        drop(waker);
    }

    /// Deadline of the next timer.
    pub(crate) fn next(&self) -> Time {
        Time(self.next.load(Ordering::Relaxed))
    }

    /// Passes the wakers of due timers to `wake`, the earliest first. Returns whether there was
    /// any.
    pub(crate) fn fire(&self, now: Time, mut wake: impl FnMut(Waker)) -> bool {
        let mut any = false;
        for _ in 0..MAX_FIRED {
            let Some(waker) = self.due(now) else { break };
            wake(waker);
            any = true;
        }
        any
    }

    /// Closes the queue and passes all wakers to `wake`. Timers set later get
    /// [`SetOutcome::Closed`].
    pub(crate) fn close(&self, wake: impl FnMut(Waker)) {
        let mut entries = lock(&self.entries);
        entries.closed = true;
        let waiting = std::mem::take(&mut entries.waiting);
        self.publish(&entries);
        drop(entries);
        waiting.into_values().for_each(wake);
    }

    fn due(&self, now: Time) -> Option<Waker> {
        // A core nearly always finds nothing due, at the cost of one load.
        if self.next() > now {
            return None;
        }
        let mut entries = lock(&self.entries);
        let first = entries.waiting.first_entry().filter(|first| first.key().deadline <= now)?;
        let waker = first.remove();
        self.publish(&entries);
        Some(waker)
    }

    /// Publishes the earliest deadline. Returns whether it is earlier than the one published
    /// before.
    fn publish(&self, entries: &Entries) -> bool {
        let next = entries.waiting.first_key_value().map_or(Time::NEVER, |(key, _)| key.deadline);
        let before = self.next();
        self.next.store(next.0, Ordering::Relaxed);
        next < before
    }

    /// Number of waiting timers.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        lock(&self.entries).waiting.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Logs its id when it is woken.
    struct LoggingWaker {
        id: usize,
        log: Arc<Mutex<Vec<usize>>>,
    }

    impl Wake for LoggingWaker {
        fn wake(self: Arc<Self>) {
            lock(&self.log).push(self.id);
        }
    }

    proptest! {
        /// Compares with a plain list: the same timers fire, in the order of deadline and then of
        /// setting.
        #[test]
        fn timers_fire_in_order(steps in prop::collection::vec((0u8..5, 0usize..20, 0u64..50), 0..200)) {
            let queue = TimerQueue::new();
            let log = Arc::new(Mutex::new(Vec::new()));
            let mut keys: Vec<Option<TimerKey>> = vec![None; 20];
            let mut model: Vec<(u64, usize, usize)> = Vec::new();
            let mut now = 0;
            for (order, (step, id, span)) in steps.into_iter().enumerate() {
                let waker = Waker::from(Arc::new(LoggingWaker { id, log: Arc::clone(&log) }));
                match step {
                    0 | 1 if keys[id].is_none() => {
                        let deadline = now + span;
                        let earlier = model.iter().all(|(other, ..)| deadline < *other);
                        let set = queue.set(&mut keys[id], Time(deadline), &waker);
                        prop_assert_eq!(set, if earlier { SetOutcome::First } else { SetOutcome::Later });
                        model.push((deadline, order, id));
                    }
                    // Setting again changes only the waker.
                    0 | 1 => {
                        let deadline = keys[id].map_or(0, |key| key.deadline.0);
                        prop_assert_eq!(queue.set(&mut keys[id], Time(deadline), &waker), SetOutcome::Later);
                    }
                    2 => {
                        if let Some(key) = keys[id].take() {
                            queue.clear(key);
                            model.retain(|(.., other)| *other != id);
                        }
                    }
                    _ => {
                        now += span;
                        model.sort_unstable();
                        let due = model.iter().take_while(|(deadline, ..)| *deadline <= now).count();
                        let expected: Vec<usize> = model.drain(..due).map(|(.., id)| id).collect();
                        prop_assert_eq!(queue.fire(Time(now), Waker::wake), due > 0);
                        let gone = std::mem::take(&mut *lock(&log));
                        gone.iter().for_each(|id| keys[*id] = None);
                        prop_assert_eq!(gone, expected);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                let next = model.iter().map(|(deadline, ..)| *deadline).min();
                prop_assert_eq!(queue.next(), next.map_or(Time::NEVER, Time));
            }
        }
    }

    #[test]
    fn closing_wakes_all_timers_and_keeps_none() {
        struct CountingWaker(AtomicUsize);
        impl Wake for CountingWaker {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let queue = TimerQueue::new();
        queue.set(&mut None, Time(5), &waker);
        queue.set(&mut None, Time::NEVER, &waker);
        queue.close(Waker::wake);
        assert_eq!(queue.set(&mut None, Time(1), &waker), SetOutcome::Closed);
        assert_eq!((count.0.load(Ordering::Relaxed), queue.len(), queue.next()), (2, 0, Time::NEVER));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::parking::Parking;
    use loom::{sync::Arc, thread};

    /// Another thread sets a timer while its core goes to sleep until a later one. The core sleeps
    /// no longer than until the earlier one, or is woken.
    #[test]
    fn a_core_never_sleeps_past_a_timer() {
        loom::model(|| {
            let queue = Arc::new(TimerQueue::new());
            let parking = Arc::new(Parking::new(1, |_| ()));
            queue.set(&mut None, Time(100), Waker::noop());
            let (other, others_parking) = (Arc::clone(&queue), Arc::clone(&parking));
            let setter = thread::spawn(move || {
                let set = other.set(&mut None, Time(10), Waker::noop());
                assert_eq!(set, SetOutcome::First);
                others_parking.wake(0)
            });
            parking.prepare_sleep(0);
            let until = queue.next();
            let woken = setter.join().unwrap();
            assert!(until == Time(10) || woken);
        });
    }

    /// Setting, clearing and firing at once: each timer fires or is cleared, and the earliest
    /// deadline is right in the end.
    #[test]
    fn a_timer_ends_once() {
        loom::model(|| {
            let queue = Arc::new(TimerQueue::new());
            let mut key = None;
            queue.set(&mut key, Time(1), Waker::noop());
            queue.set(&mut None, Time(7), Waker::noop());
            let clearing = Arc::clone(&queue);
            let clearer = thread::spawn(move || key.into_iter().for_each(|key| clearing.clear(key)));
            let mut fired = 0;
            queue.fire(Time(5), |_| fired += 1);
            clearer.join().unwrap();
            assert!(fired <= 1);
            assert_eq!(queue.next(), Time(7));
            assert!(!queue.fire(Time(5), |_| ()));
        });
    }
}
