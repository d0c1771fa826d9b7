//! A condition variable: waits for a change of the data that a mutex guards.

use super::Congested;
use super::blocking::block_on;
use super::mutex::MutexGuard;
use super::permits::charge;
use super::registry;
use super::stats::{LockCounts, LockKind, LockStats};
use super::time::now;
use super::wait_list::{NO_DEADLINE, WaitList, WaiterId, WaiterStage};
use crate::budget;
use crate::context;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// No time: no waiter.
const NO_WAITER: u64 = u64::MAX;

/// Lets holders of a mutex wait until other threads have changed the guarded data. Waiters are
/// notified in order of arrival. A notified waiter holds the mutex again when it continues. It must
/// check its condition itself, since another thread may have been quicker.
///
/// ```
/// use leeward_runtime::locks::{Condvar, Mutex};
///
/// let (jobs, more) = (Mutex::new("jobs", Vec::new()), Condvar::new("more jobs"));
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         jobs.lock_blocking().push("a job");
///         more.notify_one();
///     });
///     let mut waiting = jobs.lock_blocking();
///     while waiting.is_empty() {
///         waiting = more.wait_blocking(waiting);
///     }
///     assert_eq!(waiting.pop(), Some("a job"));
/// });
/// ```
pub struct Condvar {
    waiters: Mutex<WaitList>,
    /// Arrival time of the first waiter; [`NO_WAITER`] without one. Written under the list's mutex,
    /// read without.
    oldest: AtomicU64,
    counts: Arc<LockCounts>,
}

/// Stage of a notified waiter: whether the notification was for all waiters or for one. A waiter
/// that is dropped passes on a notification for one.
const FOR_ALL: WaiterStage = WaiterStage::Closed;
const FOR_ONE: WaiterStage = WaiterStage::Granted;

impl Condvar {
    /// Makes a condition variable without waiters. Rejections, `leeward top` and reports show the
    /// name.
    pub fn new(name: &'static str) -> Self {
        Condvar {
            waiters: Mutex::new(WaitList::default()),
            oldest: AtomicU64::new(NO_WAITER),
            counts: registry::counts(name, LockKind::Condvar),
        }
    }

    /// Releases the mutex, waits for a notification however long it takes, and acquires the mutex
    /// again.
    pub async fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        // Joins the list before the mutex is released, so that every later change finds this
        // waiter.
        let mut waiting = CondvarWait::join(self);
        drop(guard);
        (&mut waiting).await;
        let guard = MutexGuard::lock_again(mutex).await;
        waiting.finish();
        guard
    }

    /// Waits as [`Condvar::wait`] does, unless the running request's budget would not last. The
    /// expected wait is the oldest waiter's age. The wait for the mutex afterwards is never
    /// rejected.
    ///
    /// # Errors
    /// The budget would not last. The request has not waited, and the mutex is released.
    pub async fn wait_unless_congested<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> Result<MutexGuard<'a, T>, Congested> {
        self.check()?;
        Ok(self.wait(guard).await)
    }

    /// Waits as [`Condvar::wait`] does, blocking the thread.
    pub fn wait_blocking<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        block_on(self.wait(guard))
    }

    /// Waits as [`Condvar::wait_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last. The request has not waited, and the mutex is
    /// released.
    pub fn wait_blocking_unless_congested<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> Result<MutexGuard<'a, T>, Congested> {
        block_on(self.wait_unless_congested(guard))
    }

    /// Notifies the oldest waiter, if there is one.
    pub fn notify_one(&self) {
        let mut waiters = lock(&self.waiters);
        let waker = waiters.first().and_then(|first| waiters.resolve(first.id, FOR_ONE));
        self.publish(&waiters);
        drop(waiters);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notifies all waiters.
    pub fn notify_all(&self) {
        let mut waiters = lock(&self.waiters);
        let mut wakers = Vec::with_capacity(waiters.len());
        while let Some(first) = waiters.first() {
            wakers.extend(waiters.resolve(first.id, FOR_ALL));
        }
        self.publish(&waiters);
        drop(waiters);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Wait of the oldest waiter; zero without one.
    pub fn delay(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NO_WAITER { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    /// The condition variable's name.
    pub fn name(&self) -> &'static str {
        self.counts.name
    }

    /// Statistics of the condition variables of this name.
    pub fn stats(&self) -> LockStats {
        self.counts.read()
    }

    #[cfg(all(test, loom))]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.waiters).len()
    }

    fn check(&self) -> Result<(), Congested> {
        let budget = budget::current();
        if budget == Budget::UNLIMITED || budget.allows(self.delay() + context::run_delay()) {
            return Ok(());
        }
        self.counts.count_refusal();
        Err(Congested { lock: self.name() })
    }

    fn publish(&self, waiters: &WaitList) {
        self.oldest.store(waiters.first().map_or(NO_WAITER, |first| first.since.0), Ordering::Relaxed);
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A waiter in the list, or one that was notified and acquires the mutex.
struct CondvarWait<'a> {
    condvar: &'a Condvar,
    since: Time,
    spent_on_cores: Nanos,
    state: State,
}

enum State {
    Queued(WaiterId),
    /// Notified by a notification for one. If this waiter is dropped before it has the mutex,
    /// another must get the notification.
    Notified,
    /// Nothing to pass on.
    Done,
}

impl<'a> CondvarWait<'a> {
    fn join(condvar: &'a Condvar) -> Self {
        let since = now();
        let mut waiters = lock(&condvar.waiters);
        let id = waiters.push(since, NO_DEADLINE, 0, None);
        condvar.publish(&waiters);
        CondvarWait { condvar, since, spent_on_cores: budget::spent_on_cores(), state: State::Queued(id) }
    }

    /// Ends the wait: the waiter has the mutex, and the notification has had its effect.
    fn finish(&mut self) {
        self.state = State::Done;
    }
}

impl Future for &mut CondvarWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let State::Queued(id) = self.state else { return Poll::Ready(()) };
        let mut waiters = lock(&self.condvar.waiters);
        if matches!(waiters.stage(id), WaiterStage::Waiting | WaiterStage::Woken) {
            let before = waiters.set_waker(id, context.waker());
            drop(waiters);
            drop(before);
            return Poll::Pending;
        }
        let (stage, _) = waiters.remove(id);
        drop(waiters);
        self.state = if stage == FOR_ONE { State::Notified } else { State::Done };
        self.condvar.counts.count_wait(charge(self.since, self.spent_on_cores));
        Poll::Ready(())
    }
}

impl Drop for CondvarWait<'_> {
    fn drop(&mut self) {
        let mut pass_on = matches!(self.state, State::Notified);
        if let State::Queued(id) = self.state {
            charge(self.since, self.spent_on_cores);
            self.condvar.counts.count_cancelled();
            let mut waiters = lock(&self.condvar.waiters);
            let (stage, waker) = waiters.remove(id);
            self.condvar.publish(&waiters);
            drop(waiters);
            drop(waker);
            pass_on = stage == FOR_ONE;
        }
        if pass_on {
            self.condvar.notify_one();
        }
    }
}
