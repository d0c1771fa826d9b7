//! Timers of a core: which waker is due when. The core drives them; other threads may add to them and take away.

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::units::Time;
use std::collections::BTreeMap;
use std::task::Waker;

/// Timers that go off in one look, so that a crowd of them does not keep the core from its network.
const MAX_FIRED: usize = 64;

/// A timer's place in the order: at equal times, first come, first woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    deadline: Time,
    number: u64,
}

/// Outcome of setting a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOutcome {
    /// The timer waits behind an earlier one.
    Later,
    /// The timer is the first to go off: a thread that sleeps until the former first must know.
    First,
    /// These timers are driven no more.
    Closed,
}

/// A sorted map under a mutex. Taking a timer away leaves nothing behind, so the map is as large as the number of sleeps
/// that are alive. Setting one and taking it away cost some 150 ns together when there are few, and about half a
/// microsecond among ten thousand: less than what a wheel would leave behind is worth.
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

    /// Has `waker` woken at `deadline`. `key` is the timer's, if it has been set before.
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
            // It has been told of this deadline already.
            Some(present) => Some(std::mem::replace(present, waker.clone())),
            None => entries.waiting.insert(key, waker.clone()),
        };
        let first = self.publish(&entries);
        drop(entries);
        // Without the lock, as everywhere below: a waker's end may run code that comes here again.
        drop(old);
        if first { SetOutcome::First } else { SetOutcome::Later }
    }

    /// Takes a timer away; one that has gone off is none.
    pub(crate) fn clear(&self, key: TimerKey) {
        let mut entries = lock(&self.entries);
        let waker = entries.waiting.remove(&key);
        self.publish(&entries);
        drop(entries);
        drop(waker);
    }

    /// When the next timer goes off.
    pub(crate) fn next(&self) -> Time {
        Time(self.next.load(Ordering::Relaxed))
    }

    /// Hands those that are due to `wake`, the earliest first. Says whether there was any.
    pub(crate) fn fire(&self, now: Time, mut wake: impl FnMut(Waker)) -> bool {
        let mut any = false;
        for _ in 0..MAX_FIRED {
            let Some(waker) = self.due(now) else { break };
            wake(waker);
            any = true;
        }
        any
    }

    /// Ends all timers, and from now on those that are set; hands them to `wake`.
    pub(crate) fn close(&self, wake: impl FnMut(Waker)) {
        let mut entries = lock(&self.entries);
        entries.closed = true;
        let waiting = std::mem::take(&mut entries.waiting);
        self.publish(&entries);
        drop(entries);
        waiting.into_values().for_each(wake);
    }

    fn due(&self, now: Time) -> Option<Waker> {
        // Nothing due is what a core nearly always finds, and then one load tells.
        if self.next() > now {
            return None;
        }
        let mut entries = lock(&self.entries);
        let first = entries.waiting.first_entry().filter(|first| first.key().deadline <= now)?;
        let waker = first.remove();
        self.publish(&entries);
        Some(waker)
    }

    /// Publishes the earliest deadline, and says whether it is earlier than what was known.
    fn publish(&self, entries: &Entries) -> bool {
        let next = entries.waiting.first_key_value().map_or(Time::NEVER, |(key, _)| key.deadline);
        let before = self.next();
        self.next.store(next.0, Ordering::Relaxed);
        next < before
    }

    /// How many wait.
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

    /// Notes its place in the order of those woken.
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
        /// Against a plain list: the same timers go off, in the order of deadline and then of setting.
        #[test]
        fn goes_off_in_order(steps in prop::collection::vec((0u8..5, 0usize..20, 0u64..50), 0..200)) {
            let queue = TimerQueue::new();
            let log = Arc::new(Mutex::new(Vec::new()));
            let mut keys: Vec<Option<TimerKey>> = vec![None; 20];
            let mut model: Vec<(u64, usize, usize)> = Vec::new();
            let mut now = 0;
            for (turn, (step, id, span)) in steps.into_iter().enumerate() {
                let waker = Waker::from(Arc::new(LoggingWaker { id, log: Arc::clone(&log) }));
                match step {
                    0 | 1 if keys[id].is_none() => {
                        let deadline = now + span;
                        let earlier = model.iter().all(|(other, ..)| deadline < *other);
                        let set = queue.set(&mut keys[id], Time(deadline), &waker);
                        prop_assert_eq!(set, if earlier { SetOutcome::First } else { SetOutcome::Later });
                        model.push((deadline, turn, id));
                    }
                    // Setting again changes who is woken and nothing else.
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
    fn closing_wakes_everyone_and_keeps_no_one() {
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

    /// Another thread sets a timer while its core goes to sleep until a later one: the core sleeps no longer than until
    /// the earlier, or is woken.
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

    /// Setting, clearing and going off at once: each timer goes off or is cleared, and the earliest deadline is true in
    /// the end.
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
