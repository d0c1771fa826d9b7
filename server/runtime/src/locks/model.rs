//! Models of the locks: every interleaving of a few threads. A lost wake-up shows as a thread that
//! never ends, two holders at once as two accesses to one cell.

use super::{Condvar, Congested, Mutex, RwLock, Semaphore, channel};
use crate::budget;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

/// Checks all interleavings with at most `preemptions` preemptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Polls once, and drops the future. Returns whether it was ready.
fn give_up<T>(future: impl Future<Output = T>) -> bool {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

#[test]
fn a_mutex_has_one_holder_and_no_waiter_is_forgotten() {
    check(4, || {
        let mutex = Arc::new(Mutex::new("model", Cell::new(0)));
        let other = Arc::clone(&mutex);
        let thread = thread::spawn(move || {
            count(&other.lock_blocking());
            count(&other.lock_blocking());
        });
        count(&mutex.lock_blocking());
        thread.join().unwrap();
        assert_eq!(mutex.lock_blocking().get(), 3);
    });
}

#[test]
fn three_threads_contend_for_a_mutex() {
    check(2, || {
        let mutex = Arc::new(Mutex::new("model", Cell::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || count(&mutex.lock_blocking()))
            })
            .collect();
        count(&mutex.lock_blocking());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(mutex.lock_blocking().get(), 3);
    });
}

/// A waiter that is dropped passes its grant on to the next waiter.
#[test]
fn a_dropped_mutex_waiter_passes_its_grant_on() {
    check(3, || {
        let mutex = Arc::new(Mutex::new("model", Cell::new(0)));
        let (fickle, patient) = (Arc::clone(&mutex), Arc::clone(&mutex));
        let held = mutex.try_lock().unwrap();
        let threads = [
            thread::spawn(move || {
                give_up(fickle.lock());
            }),
            thread::spawn(move || count(&patient.lock_blocking())),
        ];
        count(&held);
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(mutex.try_lock().unwrap().get(), 2);
    });
}

/// A waiter that is served too late, or just in time, leaves the lock to the next waiter.
#[test]
fn a_late_mutex_waiter_is_rejected_and_the_next_gets_the_lock() {
    check(3, || {
        super::time::set_now(Time(1));
        let mutex = Arc::new(Mutex::new("model", Cell::new(0)));
        let (hurried, patient) = (Arc::clone(&mutex), Arc::clone(&mutex));
        let held = mutex.try_lock().unwrap();
        let first = thread::spawn(move || {
            let (outcome, _) =
                budget::with(Budget::new(Nanos(1)), || hurried.lock_blocking_unless_congested().map(|it| count(&it)));
            outcome
        });
        let second = thread::spawn(move || count(&patient.lock_blocking()));
        super::time::set_now(Time(5));
        drop(held);
        let holders = match first.join().unwrap() {
            Ok(()) => 2,
            Err(Congested { .. }) => 1,
        };
        second.join().unwrap();
        assert_eq!(mutex.try_lock().unwrap().get(), holders);
    });
}

/// The first of two waiters gets the lock before the second, whatever other threads do.
#[test]
fn waiters_of_a_mutex_keep_their_order() {
    check(2, || {
        let mutex = Arc::new(Mutex::new("model", Cell::new(0)));
        let held = mutex.try_lock().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (Box::pin(mutex.lock()), Box::pin(mutex.lock()));
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        let other = Arc::clone(&mutex);
        let thread = thread::spawn(move || drop(other.try_lock()));
        drop(held);
        assert!(second.as_mut().poll(&mut context).is_pending(), "the first comes first");
        drop(first);
        drop(second);
        thread.join().unwrap();
        assert!(mutex.try_lock().is_some());
    });
}

#[test]
fn a_writer_has_exclusive_access() {
    check(2, || {
        let lock = Arc::new(RwLock::new("model", RaceCell::default()));
        let (writer, reader) = (Arc::clone(&lock), Arc::clone(&lock));
        let threads = [
            thread::spawn(move || writer.write_blocking().write()),
            thread::spawn(move || reader.read_blocking().read()),
        ];
        lock.write_blocking().write();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lock.try_write().is_some());
    });
}

/// Readers behind a writer that gives up get the lock.
#[test]
fn a_writer_that_gives_up_lets_readers_pass() {
    check(3, || {
        let lock = Arc::new(RwLock::new("model", RaceCell::default()));
        let (writer, reader) = (Arc::clone(&lock), Arc::clone(&lock));
        let held = lock.try_read().unwrap();
        let threads = [
            thread::spawn(move || {
                give_up(writer.write());
            }),
            thread::spawn(move || reader.read_blocking().read()),
        ];
        held.read();
        // The lock is held until the others are done, since readers need not wait for it.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(held);
        assert!(lock.try_write().is_some());
    });
}

/// A value whose concurrent misuse loom detects.
#[derive(Default)]
struct RaceCell(loom::cell::UnsafeCell<u32>);

// Loom checks the promise of this `unsafe impl`.
#[allow(unsafe_code)]
// SAFETY: the model checker reports every access that could overlap another one.
unsafe impl Sync for RaceCell {}

impl RaceCell {
    fn read(&self) {
        self.0.with(|_| ());
    }

    fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

#[test]
fn a_semaphore_admits_at_most_its_permits() {
    check(2, || {
        let semaphore = Arc::new(Semaphore::new("model", 2));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.acquire_blocking()))
            })
            .collect();
        let both = semaphore.acquire_many(2);
        drop(super::blocking::block_on(both));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(semaphore.free(), 2);
    });
}

#[test]
fn a_notification_reaches_a_waiter() {
    check(3, || {
        let state = Arc::new((Mutex::new("model", Cell::new(0)), Condvar::new("model")));
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            other.0.lock_blocking().set(1);
            other.1.notify_one();
        });
        let mut guard = state.0.lock_blocking();
        while guard.get() == 0 {
            guard = state.1.wait_blocking(guard);
        }
        drop(guard);
        thread.join().unwrap();
    });
}

/// A waiter that is dropped while another is notified passes the notification on, if it had
/// received it.
#[test]
fn a_dropped_waiter_passes_its_notification_on() {
    check(3, || {
        let state = Arc::new((Mutex::new("model", Cell::new(0)), Condvar::new("model")));
        let other = Arc::clone(&state);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(state.1.wait(state.0.try_lock().unwrap()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        let thread = thread::spawn(move || {
            let mut guard = other.0.lock_blocking();
            // It is behind the first, so only the notification that the first passes on ends this.
            guard = other.1.wait_blocking(guard);
            count(&guard);
        });
        // Both wait in the list once the mutex is free and the other's waiter is there.
        while state.1.waiting() < 2 {
            thread::yield_now();
        }
        let notifier = Arc::clone(&state);
        let notified = thread::spawn(move || notifier.1.notify_one());
        drop(first);
        notified.join().unwrap();
        thread.join().unwrap();
        assert_eq!(state.0.lock_blocking().get(), 1);
    });
}

#[test]
fn a_sent_value_is_received_and_the_close_is_seen() {
    check(2, || {
        let (sender, receiver) = channel("model", 1);
        let thread = thread::spawn(move || {
            sender.send_blocking(1).unwrap();
            sender.send_blocking(2).unwrap();
        });
        assert_eq!(receiver.recv_blocking(), Some(1));
        assert_eq!(receiver.recv_blocking(), Some(2));
        assert_eq!(receiver.recv_blocking(), None);
        thread.join().unwrap();
    });
}

#[test]
fn a_closed_channel_keeps_no_value() {
    check(3, || {
        let (sender, receiver) = channel("model", 1);
        let value = std::sync::Arc::new(());
        let sent = std::sync::Arc::clone(&value);
        let thread = thread::spawn(move || {
            let first = sender.send_blocking(std::sync::Arc::clone(&sent));
            let second = sender.send_blocking(sent);
            assert!(first.is_ok() || second.is_err());
            sender
        });
        drop(receiver);
        let sender = thread.join().unwrap();
        drop(sender);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    });
}

/// Two threads join a queue and leave it, one of them without the resource. The queue is empty and
/// has no age afterwards.
#[test]
fn an_abandoned_queue_has_no_age() {
    check(3, || {
        let queue = Arc::new(super::AcquireQueue::new("model"));
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || {
            let mut polls = 0;
            let mut entering = pin!(other.acquire(std::future::poll_fn(|_| {
                polls += 1;
                if polls > 1 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })));
            let mut context = Context::from_waker(Waker::noop());
            while entering.as_mut().poll(&mut context).is_pending() {}
        });
        assert!(!give_up(queue.acquire(std::future::pending::<()>())));
        thread.join().unwrap();
        assert_eq!(queue.delay(), Nanos::ZERO);
        assert!(queue.is_empty());
    });
}
