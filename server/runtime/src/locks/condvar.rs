//! Waiting for what a mutex guards to change.

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

/// No time: the line is empty.
const NO_WAITER: u64 = u64::MAX;

/// Lets holders of a mutex wait until others have changed what it guards. Waiters are notified in order of arrival. A
/// notified waiter has the mutex again when it goes on, and must check its condition itself: another thread may have
/// been quicker.
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
    /// Time from which the first in the line waits; [`NOBODY`]. Written under the line's mutex, read without.
    oldest: AtomicU64,
    counts: Arc<LockCounts>,
}

/// Mark at a notified waiter's place: whether the notification was for a single waiter, and is passed on by a waiter
/// that goes.
const FOR_ALL: WaiterStage = WaiterStage::Closed;
const FOR_ONE: WaiterStage = WaiterStage::Granted;

impl Condvar {
    /// A condvar without waiters. Refusals, `leeward top` and reports use the name.
    pub fn new(name: &'static str) -> Self {
        Condvar {
            waiters: Mutex::new(WaitList::default()),
            oldest: AtomicU64::new(NO_WAITER),
            counts: registry::counts(name, LockKind::Condvar),
        }
    }

    /// Gives the mutex back, waits to be notified however long it takes, and for the mutex again.
    pub async fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        // In the line before the mutex is free: whoever changes something from now on finds this one there.
        let mut waiting = CondvarWait::join(self);
        drop(guard);
        (&mut waiting).await;
        let guard = MutexGuard::lock_again(mutex).await;
        waiting.finish();
        guard
    }

    /// As [`Condvar::wait`], unless the running request's budget would not last: the oldest waiter's age is what it is to
    /// expect. The wait for the mutex afterwards is never refused.
    ///
    /// # Errors
    /// It would not last: nothing was waited for, and the mutex is free.
    pub async fn wait_unless_congested<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> Result<MutexGuard<'a, T>, Congested> {
        self.check()?;
        Ok(self.wait(guard).await)
    }

    /// As [`Condvar::wait`], with the thread waiting.
    pub fn wait_blocking<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        block_on(self.wait(guard))
    }

    /// As [`Condvar::wait_unless_congested`], with the thread waiting.
    ///
    /// # Errors
    /// The running request's budget would not last: nothing was waited for, and the mutex is free.
    pub fn wait_blocking_unless_congested<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> Result<MutexGuard<'a, T>, Congested> {
        block_on(self.wait_unless_congested(guard))
    }

    /// Notifies the oldest waiter, if there is one.
    pub fn notify_one(&self) {
        let mut line = lock(&self.waiters);
        let waker = line.first().and_then(|first| line.resolve(first.id, FOR_ONE));
        self.publish(&line);
        drop(line);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notifies all waiters.
    pub fn notify_all(&self) {
        let mut line = lock(&self.waiters);
        let mut wakers = Vec::with_capacity(line.len());
        while let Some(first) = line.first() {
            wakers.extend(line.resolve(first.id, FOR_ALL));
        }
        self.publish(&line);
        drop(line);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// How long the oldest waiter has waited; zero without one.
    pub fn delay(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NO_WAITER { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.counts.name
    }

    /// Statistics of the condvars of this name.
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

    fn publish(&self, line: &WaitList) {
        self.oldest.store(line.first().map_or(NO_WAITER, |first| first.since.0), Ordering::Relaxed);
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// In the line, or notified and on the way to the mutex.
struct CondvarWait<'a> {
    condvar: &'a Condvar,
    since: Time,
    spent_on_cores: Nanos,
    state: State,
}

enum State {
    Queued(WaiterId),
    /// By a notification that was for one: if this waiter goes before it has the mutex, another must get it.
    Notified,
    /// Nothing is owed.
    Done,
}

impl<'a> CondvarWait<'a> {
    fn join(condvar: &'a Condvar) -> Self {
        let since = now();
        let mut line = lock(&condvar.waiters);
        let place = line.push(since, NO_DEADLINE, 0, None);
        condvar.publish(&line);
        CondvarWait { condvar, since, spent_on_cores: budget::spent_on_cores(), state: State::Queued(place) }
    }

    /// Ends the wait: the waiter goes on with the mutex, and the notification has had its effect.
    fn finish(&mut self) {
        self.state = State::Done;
    }
}

impl Future for &mut CondvarWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let State::Queued(place) = self.state else { return Poll::Ready(()) };
        let mut line = lock(&self.condvar.waiters);
        if matches!(line.stage(place), WaiterStage::Waiting | WaiterStage::Woken) {
            let before = line.set_waker(place, context.waker());
            drop(line);
            drop(before);
            return Poll::Pending;
        }
        let (stage, _) = line.remove(place);
        drop(line);
        self.state = if stage == FOR_ONE { State::Notified } else { State::Done };
        self.condvar.counts.count_wait(charge(self.since, self.spent_on_cores));
        Poll::Ready(())
    }
}

impl Drop for CondvarWait<'_> {
    fn drop(&mut self) {
        let mut passes_on = matches!(self.state, State::Notified);
        if let State::Queued(place) = self.state {
            charge(self.since, self.spent_on_cores);
            self.condvar.counts.count_cancelled();
            let mut line = lock(&self.condvar.waiters);
            let (stage, waker) = line.remove(place);
            self.condvar.publish(&line);
            drop(line);
            drop(waker);
            passes_on = stage == FOR_ONE;
        }
        if passes_on {
            self.condvar.notify_one();
        }
    }
}
