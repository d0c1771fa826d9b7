//! Core of mutexes, read-write locks, semaphores and channels: a number of permits, and a queue of
//! waiters. A mutex has one permit. A reader takes one of a read-write lock's permits, and a writer
//! all.
//!
//! **State.** One word has the number of free permits and the bit [`QUEUED`]. Without the bit,
//! acquiring and releasing are one compare-and-swap. With it, the word changes only under the
//! queue's mutex.
//!
//! **Fairness.** Waiters are served in order of arrival. When permits are released, the first
//! waiter is woken, and the permits stay free until it tries. A quicker thread may take them, so
//! that a lock isn't idle while a thread wakes up. An overtaken waiter keeps its position, with the
//! bit set, and is handed its permits the next time. So a waiter can be overtaken only between its
//! wake-up and its first try, and none starves.
//!
//! **Too late.** A waiter whose budget is spent when its turn comes gets a rejection instead of
//! permits. The thread that releases the permits resolves this, and goes on to the next waiter
//! without a detour over the late one's thread.
//!
//! **Invariant**, under the queue's mutex: with any waiter, either the bit is set, or the first
//! waiter is woken (`woken`). A woken waiter will set the bit or resolve the next one. A waiter
//! that is dropped does this work, too.

use super::registry;
use super::stats::{LockCounts, LockKind, LockStats, UncontendedCount};
use super::time::now;
use super::{Congested, wait_list};
use crate::budget;
use crate::context;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wait_list::{NO_DEADLINE, WaitList, WaiterId, WaiterStage};

/// Bit that makes all threads take the queue's mutex.
const QUEUED: u64 = 1;
/// A single permit in the state's word.
const ONE: u64 = 2;

/// No time: no waiter.
const NO_WAITER: u64 = u64::MAX;

/// Times that a thread checks for permits before it joins the queue, as often as the standard
/// library's mutex. A sleep and a wake-up cost as much as many short critical sections.
#[cfg(not(loom))]
pub(super) const SPINS_OF_THREADS: u32 = 100;
/// A task checks a tenth as often. Its core has other tasks to run, and joining the queue costs it
/// no sleep but some hundred nanoseconds.
#[cfg(not(loom))]
pub(super) const SPINS_OF_TASKS: u32 = 10;
#[cfg(loom)]
pub(super) const SPINS_OF_THREADS: u32 = 0;
#[cfg(loom)]
pub(super) const SPINS_OF_TASKS: u32 = 0;

/// Permits with a queue of waiters. See the module.
pub(super) struct Permits {
    state: AtomicU64,
    uncontended: UncontendedCount,
    /// Arrival time of the first waiter; [`NO_WAITER`] without one. Written under the queue's
    /// mutex, read without.
    oldest: AtomicU64,
    waiters: Mutex<Waiters>,
    counts: Arc<LockCounts>,
}

#[derive(Default)]
struct Waiters {
    list: WaitList,
    /// The first waiter, if it was woken and has not tried yet.
    woken: Option<WaiterId>,
    closed: bool,
}

/// Reason for acquiring nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcquireError {
    Congested(Congested),
    /// The permits are closed, so waiting is pointless.
    Closed,
}

/// Whether to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    /// However long it takes.
    Always,
    /// If the running request's budget allows it, and as long as it lasts.
    UnlessCongested,
}

/// Wakers to call after the queue's mutex is released, usually one.
#[derive(Default)]
struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    fn add(&mut self, waker: Option<Waker>) {
        match &self.first {
            None => self.first = waker,
            Some(_) => self.more.extend(waker),
        }
    }

    /// Adds the waker of a rejected waiter. Waiters that get permits are woken before it.
    fn add_late(&mut self, waker: Option<Waker>) {
        self.more.extend(waker);
    }

    fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
}

impl Permits {
    pub(super) fn new(name: &'static str, kind: LockKind, permits: u64) -> Self {
        Permits::counted(registry::counts(name, kind), permits)
    }

    /// Makes permits whose statistics are not registered by name.
    pub(super) fn unlisted(counts: LockCounts, permits: u64) -> Self {
        Permits::counted(Arc::new(counts), permits)
    }

    fn counted(counts: Arc<LockCounts>, permits: u64) -> Self {
        Permits {
            state: AtomicU64::new(permits * ONE),
            uncontended: UncontendedCount::new(),
            oldest: AtomicU64::new(NO_WAITER),
            waiters: Mutex::new(Waiters::default()),
            counts,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.counts.name
    }

    pub(super) fn stats(&self) -> LockStats {
        self.counts.read()
    }

    /// Wait of the first waiter.
    pub(super) fn delay(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NO_WAITER { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    /// Permits that are free at this moment.
    pub(super) fn free(&self) -> u64 {
        self.state.load(Ordering::Relaxed) / ONE
    }

    // ---- without waiting ----

    /// Takes the only permit, if it is free and there is no waiter.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let locked = self.state.compare_exchange(ONE, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if locked {
            self.uncontended.add_exclusive(&self.counts);
        }
        locked
    }

    /// Returns the only permit.
    #[inline]
    pub(super) fn unlock(&self) {
        if self.state.compare_exchange(0, ONE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_to_waiters(1);
        }
    }

    /// Takes `count` permits, if they are free and there is no waiter.
    #[inline]
    pub(super) fn try_acquire(&self, count: u64) -> bool {
        let acquired = self.take(count);
        if acquired {
            self.uncontended.add(&self.counts);
        }
        acquired
    }

    #[inline]
    fn take(&self, count: u64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & QUEUED == 0 && state / ONE >= count {
            let less = state - count * ONE;
            match self.state.compare_exchange_weak(state, less, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(newer) => state = newer,
            }
        }
        false
    }

    /// Returns permits, or adds new ones.
    #[inline]
    pub(super) fn release(&self, count: u64) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & QUEUED == 0 {
            let more = state + count * ONE;
            match self.state.compare_exchange_weak(state, more, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => state = newer,
            }
        }
        self.release_to_waiters(count);
    }

    // ---- with waiters ----

    #[cold]
    fn release_to_waiters(&self, count: u64) {
        let mut waiters = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let state = self.state.load(Ordering::Acquire);
        if state & QUEUED == 0 {
            // Another thread has served the queue in between. The word may change concurrently.
            self.state.fetch_add(count * ONE, Ordering::Release);
        } else {
            self.grant(&mut waiters, state / ONE + count, false, &mut wakers);
        }
        drop(waiters);
        wakers.wake();
    }

    /// Gives `free` permits to the waiters, and stores the word. The bit must be set, and no waiter
    /// woken. `handing`: hand permits to the first waiter at once.
    fn grant(&self, waiters: &mut Waiters, mut free: u64, mut handing: bool, wakers: &mut Wakers) {
        debug_assert!(waiters.woken.is_none(), "who was sent has no successor yet");
        let mut clock = None;
        let bit = loop {
            let Some(first) = waiters.list.first() else { break 0 };
            if first.deadline != NO_DEADLINE && first.deadline < *clock.get_or_insert_with(now) {
                wakers.add_late(waiters.list.resolve(first.id, WaiterStage::Late));
            } else if first.count > free {
                break QUEUED;
            } else if first.overtaken || handing {
                free -= first.count;
                wakers.add(waiters.list.resolve(first.id, WaiterStage::Granted));
                // Otherwise further waiters that fit would be woken one by another.
                handing = true;
            } else {
                wakers.add(waiters.list.mark_woken(first.id));
                waiters.woken = Some(first.id);
                break 0;
            }
        };
        self.state.store((free * ONE) | bit, Ordering::Release);
        self.publish(waiters);
    }

    fn publish(&self, waiters: &Waiters) {
        self.oldest.store(waiters.list.first().map_or(NO_WAITER, |first| first.since.0), Ordering::Relaxed);
    }

    /// Sets the bit, so that the word changes under the queue's mutex only. Returns the free
    /// permits.
    fn freeze(&self, _: &MutexGuard<'_, Waiters>) -> u64 {
        self.state.fetch_or(QUEUED, Ordering::Acquire) / ONE
    }

    /// Takes the permits, or joins the queue for as long as `budget` lasts.
    fn take_or_enqueue(
        &self,
        count: u64,
        budget: Budget,
        waker: &Waker,
    ) -> Result<Option<(WaiterId, Time)>, AcquireError> {
        let since = now();
        let deadline = budget.remaining().map_or(NO_DEADLINE, |left| since + left);
        let mut waiters = lock(&self.waiters);
        if waiters.list.len() == 0 || waiters.woken.is_some() {
            // Without waiters, or with a woken one that will serve the others, this works as
            // without the queue. But the bit must be set before a thread waits alone.
            let mut state = self.state.load(Ordering::Relaxed);
            loop {
                if state & QUEUED == 0 && state / ONE >= count {
                    let less = state - count * ONE;
                    match self.state.compare_exchange_weak(state, less, Ordering::Acquire, Ordering::Relaxed) {
                        Ok(_) => return Ok(None),
                        Err(newer) => state = newer,
                    }
                } else if waiters.closed {
                    return Err(AcquireError::Closed);
                } else if state & QUEUED != 0 || waiters.woken.is_some() {
                    break;
                } else {
                    match self.state.compare_exchange_weak(state, state | QUEUED, Ordering::Relaxed, Ordering::Relaxed)
                    {
                        Ok(_) => break,
                        Err(newer) => state = newer,
                    }
                }
            }
        } else if waiters.closed {
            return Err(AcquireError::Closed);
        }
        let id = waiters.list.push(since, deadline, count, Some(waker.clone()));
        self.publish(&waiters);
        Ok(Some((id, since)))
    }

    /// Returns whether a waiter was woken for permits that a quicker thread has taken. These may be
    /// free again in a moment.
    fn is_early(&self, id: WaiterId, count: u64) -> bool {
        lock(&self.waiters).list.stage(id) == WaiterStage::Woken && self.free() < count
    }

    /// Outcome of a waiter so far.
    fn poll_waiter(&self, id: WaiterId, count: u64, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let mut waiters = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let outcome = match waiters.list.stage(id) {
            WaiterStage::Waiting => {
                let before = waiters.list.set_waker(id, waker);
                drop(waiters);
                drop(before);
                return Poll::Pending;
            }
            WaiterStage::Granted => Ok(()),
            WaiterStage::Closed => Err(AcquireError::Closed),
            WaiterStage::Late => Err(AcquireError::Congested(self.refuse())),
            WaiterStage::Woken => {
                let free = self.freeze(&waiters);
                waiters.woken = None;
                if free < count {
                    let before = waiters.list.mark_overtaken(id, waker);
                    drop(waiters);
                    drop(before);
                    return Poll::Pending;
                }
                waiters.list.resolve(id, WaiterStage::Granted);
                self.grant(&mut waiters, free - count, true, &mut wakers);
                Ok(())
            }
        };
        waiters.list.remove(id);
        drop(waiters);
        wakers.wake();
        Poll::Ready(outcome)
    }

    /// Removes a waiter that has not seen its outcome.
    fn cancel(&self, id: WaiterId, count: u64) {
        let mut waiters = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let (stage, waker) = waiters.list.remove(id);
        match stage {
            WaiterStage::Granted => {
                drop(waiters);
                self.release(count);
                return;
            }
            WaiterStage::Closed | WaiterStage::Late => {}
            WaiterStage::Waiting if waiters.woken.is_some() => self.publish(&waiters),
            // The next waiter may fit where this one did not, or has to be woken instead.
            WaiterStage::Waiting | WaiterStage::Woken => {
                waiters.woken = None;
                let free = self.freeze(&waiters);
                self.grant(&mut waiters, free, false, &mut wakers);
            }
        }
        drop(waiters);
        drop(waker);
        wakers.wake();
    }

    /// Closes the queue: current and later waiters get an error. Free permits can still be taken.
    pub(super) fn close(&self) {
        let mut waiters = lock(&self.waiters);
        let mut wakers = Wakers::default();
        waiters.closed = true;
        waiters.woken = None;
        while let Some(first) = waiters.list.first() {
            wakers.add(waiters.list.resolve(first.id, WaiterStage::Closed));
        }
        let free = self.freeze(&waiters);
        self.grant(&mut waiters, free, false, &mut wakers);
        drop(waiters);
        wakers.wake();
    }

    /// Rejects the running request if it would wait too long. The expected wait is that of the
    /// first waiter, plus `besides` in downstream queues, plus that for a core.
    pub(super) fn check(&self, besides: Nanos) -> Result<(), Congested> {
        let budget = budget::current();
        // A request without any budget left would only wait for its rejection.
        let lasts = !budget.is_spent() && budget.allows(self.delay() + besides + context::run_delay());
        if budget == Budget::UNLIMITED || lasts {
            return Ok(());
        }
        Err(self.refuse())
    }

    /// Counts a rejection.
    fn refuse(&self) -> Congested {
        super::refuse(&self.counts)
    }

    /// Counts permits that were taken without the counting fast path.
    fn count_uncontended(&self) {
        self.uncontended.add(&self.counts);
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        self.counts.count_uncontended(self.uncontended.unreported());
    }
}

/// Waits for permits. The caller owns them once it is ready; a future dropped before has taken
/// none.
#[must_use = "it waits when it is awaited"]
pub(super) struct Acquire<'a> {
    permits: &'a Permits,
    count: u64,
    wait: WaitPolicy,
    spins: u32,
    waiting: Option<QueuedWait>,
}

/// A waiter in the queue.
#[derive(Clone, Copy)]
struct QueuedWait {
    id: WaiterId,
    since: Time,
    /// Budget that the request had spent in run queues before. Time spent there meanwhile is
    /// charged already.
    spent_on_cores: Nanos,
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(super) fn new(permits: &'a Permits, count: u64, wait: WaitPolicy, spins: u32) -> Self {
        Acquire { permits, count, wait, spins, waiting: None }
    }

    /// Returns whether it waits in the queue.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Removes a waiter that has not seen its outcome.
    #[cold]
    fn give_up(&self, waiting: QueuedWait) {
        charge(waiting.since, waiting.spent_on_cores);
        self.permits.counts.count_cancelled();
        self.permits.cancel(waiting.id, self.count);
    }

    /// Spins for a moment while there is no waiter. Returns whether it got the permits.
    fn spin(&self) -> bool {
        for _ in 0..self.spins {
            let state = self.permits.state.load(Ordering::Relaxed);
            if state & QUEUED != 0 {
                return false;
            }
            if state / ONE >= self.count && self.permits.take(self.count) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Gives a quicker thread a moment to release the permits.
    fn linger(&self) {
        for _ in 0..self.spins {
            let state = self.permits.state.load(Ordering::Relaxed);
            if state & QUEUED != 0 || state / ONE >= self.count {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn begin(&mut self, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        if self.permits.take(self.count) || self.spin() {
            self.permits.count_uncontended();
            return Poll::Ready(Ok(()));
        }
        let budget = match self.wait {
            WaitPolicy::Always => Budget::UNLIMITED,
            WaitPolicy::UnlessCongested => {
                self.permits.check(Nanos::ZERO).map_err(AcquireError::Congested)?;
                budget::current()
            }
        };
        match self.permits.take_or_enqueue(self.count, budget, waker)? {
            None => {
                self.permits.count_uncontended();
                Poll::Ready(Ok(()))
            }
            Some((place, since)) => {
                self.waiting = Some(QueuedWait { id: place, since, spent_on_cores: budget::spent_on_cores() });
                Poll::Pending
            }
        }
    }
}

/// Charges the running request for a wait since `since`, less the part spent in run queues.
pub(super) fn charge(since: Time, spent_on_cores: Nanos) -> Nanos {
    let waited = now().since(since);
    let charged = budget::spent_on_cores().0.saturating_sub(spent_on_cores.0);
    budget::charge(Nanos(waited.0.saturating_sub(charged)));
    waited
}

impl Future for Acquire<'_> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiting) = self.waiting else { return self.begin(context.waker()) };
        // A waiter that was handed its permits delays others and must not linger.
        if self.permits.is_early(waiting.id, self.count) {
            self.linger();
        }
        let Poll::Ready(outcome) = self.permits.poll_waiter(waiting.id, self.count, context.waker()) else {
            return Poll::Pending;
        };
        self.waiting = None;
        let waited = charge(waiting.since, waiting.spent_on_cores);
        match outcome {
            // Its wait for a core since the wake-up counts, too.
            Ok(()) if self.wait == WaitPolicy::UnlessCongested && budget::current().is_spent() => {
                self.permits.release(self.count);
                return Poll::Ready(Err(AcquireError::Congested(self.permits.refuse())));
            }
            Ok(()) => self.permits.counts.count_wait(waited),
            Err(AcquireError::Congested(_)) => {}
            Err(AcquireError::Closed) => self.permits.counts.count_cancelled(),
        }
        Poll::Ready(outcome)
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting {
            self.give_up(waiting);
        }
    }
}
