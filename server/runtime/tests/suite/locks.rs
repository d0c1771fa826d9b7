//! Tests of the locks' public interface: order of service, budgets, cancellation, statistics, and
//! contention between real threads. Does not contain assertions about elapsed time.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_runtime::budget;
use leeward_runtime::locks::{Condvar, Congested, Mutex, RwLock, Semaphore, SendError, Sender, channel};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Waker that counts its calls.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with its own waker.
struct PolledFuture<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Counter>,
}

impl<'a, T> PolledFuture<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Self {
        PolledFuture { future: Box::pin(future), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn ready(&mut self) -> T {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst) > 0
    }
}

/// Runs `call` as a request whose remaining budget is `left`.
fn with_budget<T>(left: Nanos, call: impl FnOnce() -> T) -> T {
    budget::with(Budget::new(left), call).0
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Spins until `delay`, the age of a lock's oldest waiter or of a channel's oldest value, reaches
/// 1 us.
fn let_time_pass(delay: impl Fn() -> Nanos) {
    while delay() < Nanos(1_000) {
        std::hint::spin_loop();
    }
}

#[test]
fn guards_are_send_if_their_values_are() {
    fn sends<T: Send>(_: &T) {}
    let mutex = Mutex::new("sent", 1);
    sends(&mutex.lock());
    sends(&mutex.lock_unless_congested());
    sends(&mutex.try_lock().unwrap());
    let rwlock = RwLock::new("sent", 1);
    sends(&rwlock.read());
    sends(&rwlock.write());
    let (sender, receiver) = channel::<u8>("sent", 1);
    sends(&sender.send(1));
    sends(&receiver.recv());
}

#[test]
fn waiters_of_a_mutex_are_served_in_order() {
    let mutex = Mutex::new("order", ());
    let held = mutex.try_lock().unwrap();
    let mut waiters: Vec<_> = (0..5).map(|_| PolledFuture::new(mutex.lock())).collect();
    assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()));
    drop(held);
    for next in 0..5 {
        assert!(waiters[next].is_woken());
        assert!(waiters[next + 1..].iter().all(|later| !later.is_woken()));
        // A waiter that is polled out of turn keeps waiting.
        for later in &mut waiters[next + 1..] {
            assert!(later.poll().is_pending());
        }
        drop(waiters[next].ready());
    }
    assert_eq!(mutex.delay(), Nanos::ZERO);
}

#[test]
fn a_waiter_is_overtaken_at_most_once() {
    let mutex = Mutex::new("overtaken", 0);
    let held = mutex.try_lock().unwrap();
    let (mut first, mut second) = (PolledFuture::new(mutex.lock()), PolledFuture::new(mutex.lock()));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(held);
    // The first waiter is woken but not yet polled. Meanwhile another caller can take the lock.
    let quicker = mutex.try_lock().unwrap();
    assert!(first.poll().is_pending());
    drop(quicker);
    assert!(mutex.try_lock().is_none(), "it has been handed over");
    drop(first.ready());
    drop(second.ready());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_dropped_waiter_leaves_no_state_and_wakes_the_next() {
    // Case 0: the dropped waiter is in the middle of the queue. Case 1: it is woken. Case 2: it is
    // handed the lock.
    for case in 0..3 {
        let mutex = Mutex::new("cancelled", ());
        let held = mutex.try_lock().unwrap();
        let mut waiters: Vec<_> = (0..3).map(|_| PolledFuture::new(mutex.lock())).collect();
        assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()));
        match case {
            0 => {
                drop(waiters.remove(1));
                drop(held);
            }
            1 => {
                drop(held);
                drop(waiters.remove(0));
            }
            _ => {
                drop(held);
                let quicker = mutex.try_lock().unwrap();
                assert!(waiters[0].poll().is_pending());
                drop(quicker);
                drop(waiters.remove(0));
            }
        }
        for waiter in &mut waiters {
            assert!(waiter.is_woken(), "{case}");
            drop(waiter.ready());
        }
        assert!(mutex.try_lock().is_some());
        let stats = mutex.stats();
        assert_eq!((stats.contended, stats.cancelled), (2, 1));
    }
}

#[test]
fn a_request_without_enough_budget_is_rejected_at_once() {
    let mutex = Mutex::new("congested", ());
    let rejected = Err(Congested { lock: "congested" });
    let outcome = |left| with_budget(left, || mutex.lock_blocking_unless_congested().map(drop));
    // A free lock is taken whatever the budget.
    assert_eq!(outcome(Nanos::ZERO), Ok(()));
    let held = mutex.try_lock().unwrap();
    assert_eq!(outcome(Nanos::ZERO), rejected, "it is not free, and nothing is left to spend");
    let mut oldest = PolledFuture::new(mutex.lock_unless_congested());
    assert!(with_budget(Nanos(500), || oldest.poll()).is_pending(), "nobody waits yet");
    let_time_pass(|| mutex.delay());
    assert_eq!(outcome(Nanos(10)), rejected);
    let poll = with_budget(Nanos(10), || poll_once(mutex.lock_unless_congested()));
    assert!(matches!(poll, Poll::Ready(Err(Congested { lock: "congested" }))));
    // These callers wait: one that uses the plain form, one with enough budget, and one outside of
    // a request.
    assert!(with_budget(Nanos(10), || poll_once(mutex.lock())).is_pending());
    assert!(with_budget(Nanos::from_secs(1_000), || poll_once(mutex.lock_unless_congested())).is_pending());
    assert!(poll_once(mutex.lock_unless_congested()).is_pending());
    drop(held);
    // The oldest waiter's turn comes after its budget is spent.
    assert!(with_budget(Nanos(500), || oldest.ready()).is_err());
    let stats = mutex.stats();
    assert_eq!((stats.refused, stats.contended, stats.cancelled), (4, 0, 3));
    assert_eq!(outcome(Nanos::ZERO), Ok(()));
}

#[test]
fn a_waiter_that_would_be_late_is_rejected_and_the_next_has_the_lock() {
    let mutex = Mutex::new("late", ());
    let held = mutex.try_lock().unwrap();
    let mut hurried = PolledFuture::new(mutex.lock_unless_congested());
    let mut patient = PolledFuture::new(mutex.lock_unless_congested());
    let mut plain = PolledFuture::new(mutex.lock());
    assert!(with_budget(Nanos(500), || hurried.poll()).is_pending());
    // The deadline is later than a clock can represent, so this waiter is never late.
    assert!(with_budget(Nanos(u64::MAX - 1), || patient.poll()).is_pending());
    assert!(with_budget(Nanos(500), || plain.poll()).is_pending());
    let_time_pass(|| mutex.delay());
    assert!(with_budget(Nanos(500), || hurried.poll()).is_pending(), "nobody's turn has come");
    drop(held);
    assert!(hurried.is_woken() && patient.is_woken() && !plain.is_woken());
    let ((), left) = budget::with(Budget::new(Nanos(500)), || {
        assert_eq!(hurried.ready().err(), Some(Congested { lock: "late" }));
    });
    assert_eq!(left, Budget::new(Nanos::ZERO), "it has waited all the same");
    drop(patient.ready().unwrap());
    drop(plain.ready());
    let stats = mutex.stats();
    assert_eq!((stats.refused, stats.contended, stats.cancelled), (1, 2, 0));
    assert!(mutex.try_lock().is_some());
}

#[test]
fn readers_pass_a_writer_that_would_be_late() {
    let lock = RwLock::new("late", ());
    let reads = lock.try_read().unwrap();
    let also_reads = lock.try_read().unwrap();
    let mut writer = PolledFuture::new(lock.write_unless_congested());
    assert!(with_budget(Nanos(500), || writer.poll()).is_pending());
    let mut reader = PolledFuture::new(lock.read());
    assert!(reader.poll().is_pending());
    let_time_pass(|| lock.delay());
    // The remaining reader would keep the writer waiting, but not other readers.
    drop(reads);
    assert!(reader.is_woken());
    let guard = reader.ready();
    assert!(writer.ready().is_err());
    drop((guard, also_reads));
    assert!(lock.try_write().is_some());
}

#[test]
fn waiting_is_charged_and_holding_is_not() {
    let mutex = Mutex::new("charged", ());
    let held = mutex.try_lock().unwrap();
    let enough = Nanos::from_secs(1_000);
    let ((), left) = budget::with(Budget::new(enough), || {
        let mut waiting = PolledFuture::new(mutex.lock_unless_congested());
        assert!(waiting.poll().is_pending());
        let_time_pass(|| mutex.delay());
        let delay = mutex.delay();
        drop(held);
        let guard = waiting.ready().unwrap();
        let spent = |budget: Budget| Nanos(enough.0 - budget.remaining().unwrap().0);
        let waited = spent(budget::current());
        assert!(waited >= delay);
        // The time with the lock is not charged.
        std::thread::sleep(std::time::Duration::from_micros(10));
        drop(guard);
        assert_eq!(spent(budget::current()), waited);
    });
    assert!(left.remaining().unwrap() < enough);
    // A wait longer than the budget leaves zero.
    let held = mutex.try_lock().unwrap();
    let ((), left) = budget::with(Budget::new(Nanos(5)), || {
        let mut waiting = PolledFuture::new(mutex.lock());
        assert!(waiting.poll().is_pending());
        let_time_pass(|| mutex.delay());
        drop(held);
        drop(waiting.ready());
    });
    assert_eq!(left, Budget::new(Nanos::ZERO));
}

#[test]
fn readers_share_and_a_writer_is_not_starved() {
    let lock = RwLock::new("read", 0);
    let (one, two) = (lock.try_read().unwrap(), lock.try_read().unwrap());
    let mut writer = PolledFuture::new(lock.write());
    assert!(writer.poll().is_pending());
    // All these readers queue after the writer.
    let mut readers: Vec<_> = (0..3).map(|_| PolledFuture::new(lock.read())).collect();
    assert!(lock.try_read().is_none());
    assert!(readers.iter_mut().all(|reader| reader.poll().is_pending()));
    drop((one, two));
    let mut written = writer.ready();
    *written = 7;
    assert!(readers.iter_mut().all(|reader| reader.poll().is_pending()));
    drop(written);
    let guards: Vec<_> = readers.iter_mut().map(PolledFuture::ready).collect();
    assert!(guards.iter().all(|guard| **guard == 7) && guards.len() == 3);
    assert!(lock.try_write().is_none());
    drop(guards);
    assert!(lock.try_write().is_some());
}

#[test]
fn readers_go_on_when_the_writer_before_them_gives_up() {
    let lock = RwLock::new("gives up", ());
    let held = lock.try_read().unwrap();
    let mut writer = PolledFuture::new(lock.write());
    assert!(writer.poll().is_pending());
    let mut readers: Vec<_> = (0..2).map(|_| PolledFuture::new(lock.read())).collect();
    assert!(readers.iter_mut().all(|reader| reader.poll().is_pending()));
    drop(writer);
    let guards: Vec<_> = readers.iter_mut().map(PolledFuture::ready).collect();
    drop((held, guards));
    assert!(lock.try_write().is_some());
}

#[test]
fn a_semaphore_serves_large_acquisitions_in_order() {
    let semaphore = Semaphore::new("wishes", 3);
    let held = semaphore.try_acquire().unwrap();
    let mut large = PolledFuture::new(semaphore.acquire_many(3));
    let mut small = PolledFuture::new(semaphore.acquire());
    assert!(large.poll().is_pending() && small.poll().is_pending() && semaphore.try_acquire().is_none());
    drop(held);
    let permit = large.ready();
    assert!(small.poll().is_pending());
    drop(permit);
    drop(small.ready());
    assert_eq!(semaphore.free(), 3);
}

#[test]
fn a_notification_is_not_lost_with_its_waiter() {
    let (mutex, condvar) = (Mutex::new("changes", 0), Condvar::new("changed"));
    // Case 0: the first waiter is dropped before the notification. Case 1: it is dropped after the
    // notification. Case 2: it is dropped while it waits for the mutex.
    for case in 0..3 {
        let mut first = PolledFuture::new(condvar.wait(mutex.try_lock().unwrap()));
        assert!(first.poll().is_pending());
        let mut second = PolledFuture::new(condvar.wait(mutex.try_lock().unwrap()));
        assert!(second.poll().is_pending());
        let held = match case {
            0 => {
                drop(first);
                condvar.notify_one();
                None
            }
            1 => {
                condvar.notify_one();
                drop(first);
                None
            }
            _ => {
                let held = mutex.try_lock().unwrap();
                condvar.notify_one();
                assert!(first.poll().is_pending());
                drop(first);
                Some(held)
            }
        };
        drop(held);
        assert!(second.is_woken(), "{case}");
        drop(second.ready());
        assert!(mutex.try_lock().is_some());
        assert_eq!(condvar.delay(), Nanos::ZERO);
    }
}

#[test]
fn all_waiters_are_notified_in_order_and_congested_ones_rejected() {
    let (mutex, condvar) = (Mutex::new("all", ()), Condvar::new("notified"));
    let mut waiters = Vec::new();
    for _ in 0..3 {
        // One after the other: each waiter releases the mutex at its first poll.
        let mut waiter = PolledFuture::new(condvar.wait(mutex.try_lock().unwrap()));
        assert!(waiter.poll().is_pending());
        waiters.push(waiter);
    }
    let_time_pass(|| condvar.delay());
    let outcome = with_budget(Nanos(1), || condvar.wait_blocking_unless_congested(mutex.try_lock().unwrap()).map(drop));
    assert_eq!(outcome, Err(Congested { lock: "notified" }));
    assert!(mutex.try_lock().is_some(), "refused, it holds nothing");
    condvar.notify_all();
    assert!(waiters.iter().all(PolledFuture::is_woken));
    for waiter in &mut waiters {
        drop(waiter.ready());
    }
}

#[test]
fn values_arrive_in_order_and_end_with_the_last_sender() {
    let (sender, receiver) = channel("values", 2);
    let mut sends: Vec<_> = (0..4).map(|n| PolledFuture::new(sender.send(n))).collect();
    let sent = sends.iter_mut().filter_map(|send| if send.poll().is_ready() { Some(()) } else { None }).count();
    assert_eq!(sent, 2);
    assert_eq!(receiver.try_recv(), Some(0));
    assert_eq!(receiver.try_recv(), Some(1));
    assert!(sends[2].poll().is_ready() && sends[3].poll().is_ready());
    drop(sends);
    let mut waiting =
        PolledFuture::new(async { (receiver.recv().await, receiver.recv().await, receiver.recv().await) });
    assert!(waiting.poll().is_pending());
    drop(sender);
    assert_eq!(waiting.ready(), (Some(2), Some(3), None));
}

#[test]
fn a_channel_without_receivers_rejects_values() {
    let (sender, receiver) = channel("abandoned", 1);
    let value = Arc::new(());
    sender.try_send(Arc::clone(&value)).unwrap();
    let mut waiting = PolledFuture::new(sender.send(Arc::clone(&value)));
    assert!(waiting.poll().is_pending());
    drop(receiver);
    assert!(matches!(waiting.ready(), Err(SendError::Closed(_))));
    assert!(matches!(sender.try_send(Arc::clone(&value)), Err(SendError::Closed(_))));
    drop(waiting);
    assert_eq!(Arc::strong_count(&value), 1);
}

/// The last receiver is dropped while the channel holds a value. That value owns a sender of the
/// same channel and sends through it when it is dropped.
#[test]
fn a_value_that_is_dropped_with_its_channel_may_send() {
    struct SendOnDrop(Option<Sender<SendOnDrop>>, Arc<AtomicBool>);
    impl Drop for SendOnDrop {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                let failed = sender.send_blocking(SendOnDrop(None, Arc::clone(&self.1))).is_err();
                self.1.store(failed, Ordering::SeqCst);
            }
        }
    }
    let (sender, receiver) = channel("polite", 1);
    let failed = Arc::new(AtomicBool::new(false));
    let (last, flag) = (sender.clone(), Arc::clone(&failed));
    sender.try_send(SendOnDrop(Some(last), flag)).unwrap();
    let thread = std::thread::spawn(move || drop(receiver));
    thread.join().unwrap();
    assert!(failed.load(Ordering::SeqCst));
}

#[test]
fn a_channel_rejects_by_the_age_of_its_oldest_value() {
    let (sender, receiver) = channel("aged", 8);
    assert!(with_budget(Nanos(10), || sender.send_blocking_unless_congested(1)).is_ok());
    let_time_pass(|| sender.delay());
    let rejected = with_budget(Nanos(10), || sender.send_blocking_unless_congested(2));
    assert!(matches!(rejected, Err(SendError::Congested(2, Congested { lock: "aged" }))));
    assert_eq!(receiver.try_recv(), Some(1));
    assert!(with_budget(Nanos(10), || sender.send_blocking_unless_congested(3)).is_ok());
    assert_eq!(sender.stats().refused, 1);
}

#[test]
fn contending_threads_lose_no_increment() {
    const THREADS: usize = 4;
    const TIMES: usize = 5_000;
    let mutex = Mutex::new("contended by threads", 0);
    let rwlock = RwLock::new("contended by threads", 0);
    let semaphore = Semaphore::new("contended by threads", 2);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for round in 0..TIMES {
                    *mutex.lock_blocking() += 1;
                    if round % 4 == 0 {
                        *rwlock.write_blocking() += 1;
                    } else {
                        let _ = *rwlock.read_blocking();
                    }
                    let _permit = semaphore.acquire_blocking();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((*mutex.lock_blocking(), *rwlock.read_blocking()), (THREADS * TIMES, THREADS * TIMES / 4));
    let stats = mutex.stats();
    assert!(stats.acquired > (THREADS * TIMES) as u64 - 64 && stats.acquired <= (THREADS * TIMES) as u64 + 1);
    assert_eq!(stats.waits.iter().sum::<u64>(), stats.contended);
    assert_eq!(semaphore.free(), 2);
}

/// Threads mix acquisitions that wait, that may be rejected, and that drop their future after one
/// poll. No thread is left waiting, and no increment is lost.
#[test]
fn waiting_rejectable_and_dropped_acquisitions_mix_without_loss() {
    const THREADS: usize = 6;
    const TIMES: usize = 3_000;
    let mutex = Mutex::new("contended by the hurried", 0);
    let (counted, rejected) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (mutex, counted, rejected) = (&mutex, &counted, &rejected);
            let add = move |mut guard: leeward_runtime::locks::MutexGuard<'_, usize>| {
                *guard += 1;
                counted.fetch_add(1, Ordering::SeqCst);
                (0..200).for_each(|_| std::hint::spin_loop());
            };
            threads.spawn(move || {
                for round in 0..TIMES {
                    match (thread + round) % 3 {
                        0 => add(mutex.lock_blocking()),
                        1 => match with_budget(Nanos(round as u64 * 7), || mutex.lock_blocking_unless_congested()) {
                            Ok(guard) => add(guard),
                            Err(_) => drop(rejected.fetch_add(1, Ordering::SeqCst)),
                        },
                        _ => {
                            if let Poll::Ready(guard) = poll_once(mutex.lock()) {
                                add(guard);
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(*mutex.lock_blocking(), counted.load(Ordering::SeqCst));
    assert_eq!(mutex.stats().refused, rejected.load(Ordering::SeqCst) as u64);
    assert!(counted.load(Ordering::SeqCst) >= THREADS * TIMES / 3);
    assert_eq!(mutex.delay(), Nanos::ZERO);
}

#[test]
fn a_relay_over_a_condvar_and_a_channel_completes() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 500;
    let (turn, changed) = (Mutex::new("relay", 0), Condvar::new("relay"));
    let (sender, receiver) = channel("relay", 1);
    std::thread::scope(|threads| {
        for me in 0..THREADS {
            let sender = sender.clone();
            let (turn, changed) = (&turn, &changed);
            threads.spawn(move || {
                for _ in 0..ROUNDS {
                    let mut holder = turn.lock_blocking();
                    while *holder % THREADS != me {
                        holder = changed.wait_blocking(holder);
                    }
                    let number = *holder;
                    *holder += 1;
                    drop(holder);
                    changed.notify_all();
                    sender.send_blocking(number).unwrap();
                }
            });
        }
        drop(sender);
        let mut received: Vec<usize> = std::iter::from_fn(|| receiver.recv_blocking()).collect();
        received.sort_unstable();
        assert!(received.into_iter().eq(0..THREADS * ROUNDS));
    });
}
