//! Engine of mutexes, read-write locks, semaphores and channels: a number of permits, and a line of those that wait for
//! some. A mutex has one permit. A reader takes one of a read-write lock's permits, and a writer all.
//!
//! **The state** is one word: how many permits are free, and whether the line is to be asked before anyone takes or returns
//! any ([`LINE`]). Without that bit, taking and returning are one compare-and-swap. With it, the word changes only under the
//! line's mutex.
//!
//! **Fairness.** Who waits is served in order of arrival. When permits come back, the first in the line is woken and the
//! permits stay free until it has come: whoever is quicker has them, so that a lock isn't idle while a thread wakes up. One
//! that came too late waits on at its place, with the bit set, and the next time it is handed what it waits for. So a waiter
//! is overtaken only between its being woken and its first try, and nobody starves.
//!
//! **Too late.** A waiter whose budget has been spent by the time its turn comes is told so instead of being handed anything,
//! without a detour over its thread: by whoever gives the permits back, who goes on to the next one.
//!
//! **Invariant**, under the line's mutex: if anyone is in the line, either the bit is set, or the first has been woken and is
//! on its way (`sent`), and will set the bit or see to the next one. A waiter that is dropped does what it owed.

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

/// The bit that sends everyone to the line.
const QUEUED: u64 = 1;
/// A single permit in the state's word.
const ONE: u64 = 2;

/// No time: the line is empty.
const NO_WAITER: u64 = u64::MAX;

/// How often a thread looks whether the permits are back before it joins the line: as often as the standard library's mutex.
/// A sleep and a wake-up cost as much as many short critical sections.
#[cfg(not(loom))]
pub(super) const SPINS_OF_THREADS: u32 = 100;
/// A task looks a tenth as often: its core has others to run, and joining the line costs it no sleep but some hundred
/// nanoseconds.
#[cfg(not(loom))]
pub(super) const SPINS_OF_TASKS: u32 = 10;
#[cfg(loom)]
pub(super) const SPINS_OF_THREADS: u32 = 0;
#[cfg(loom)]
pub(super) const SPINS_OF_TASKS: u32 = 0;

/// See the module.
pub(super) struct Permits {
    state: AtomicU64,
    uncontended: UncontendedCount,
    /// Time from which the first in the line waits; [`NOBODY`]. Written under the line's mutex, read without.
    oldest: AtomicU64,
    waiters: Mutex<Waiters>,
    counts: Arc<LockCounts>,
}

#[derive(Default)]
struct Waiters {
    list: WaitList,
    /// The first, if it has been woken and has not come yet.
    woken: Option<WaiterId>,
    closed: bool,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcquireError {
    Congested(Congested),
    /// There is nothing to wait for any more.
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

/// Wakers to call when the line's mutex is free again: one most of the time.
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

    /// Adds the waker of a waiter that gets nothing. Waiters that get permits are woken before it.
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

    /// Permits whose numbers are not listed by name.
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

    /// How long the first in the line has waited.
    pub(super) fn delay(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NO_WAITER { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    /// Permits that are free at this moment.
    pub(super) fn free(&self) -> u64 {
        self.state.load(Ordering::Relaxed) / ONE
    }

    // ---- without waiting ----

    /// Takes the only permit there is.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let locked = self.state.compare_exchange(ONE, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if locked {
            self.uncontended.add_exclusive(&self.counts);
        }
        locked
    }

    /// Returns the only permit there is.
    #[inline]
    pub(super) fn unlock(&self) {
        if self.state.compare_exchange(0, ONE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_to_waiters(1);
        }
    }

    /// Takes `count` permits, if they are free and the line is empty.
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

    /// Returns some, or adds new ones.
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

    // ---- with the line ----

    #[cold]
    fn release_to_waiters(&self, count: u64) {
        let mut line = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let state = self.state.load(Ordering::Acquire);
        if state & QUEUED == 0 {
            // Somebody has seen to the line in between. What the word is now may change under our hands.
            self.state.fetch_add(count * ONE, Ordering::Release);
        } else {
            self.grant(&mut line, state / ONE + count, false, &mut wakers);
        }
        drop(line);
        wakers.wake();
    }

    /// Gives `free` permits to the line, and sets the word. The bit must be set, and no waiter sent. `handing`: hand
    /// the permits to the first waiter at once.
    fn grant(&self, line: &mut Waiters, mut free: u64, mut handing: bool, wakers: &mut Wakers) {
        debug_assert!(line.woken.is_none(), "who was sent has no successor yet");
        let mut clock = None;
        let bit = loop {
            let Some(first) = line.list.first() else { break 0 };
            if first.deadline != NO_DEADLINE && first.deadline < *clock.get_or_insert_with(now) {
                wakers.add_late(line.list.resolve(first.id, WaiterStage::Late));
            } else if first.count > free {
                break QUEUED;
            } else if first.overtaken || handing {
                free -= first.count;
                wakers.add(line.list.resolve(first.id, WaiterStage::Granted));
                // Those behind it that fit too would otherwise be woken one by the other.
                handing = true;
            } else {
                wakers.add(line.list.mark_woken(first.id));
                line.woken = Some(first.id);
                break 0;
            }
        };
        self.state.store((free * ONE) | bit, Ordering::Release);
        self.publish(line);
    }

    fn publish(&self, line: &Waiters) {
        self.oldest.store(line.list.first().map_or(NO_WAITER, |first| first.since.0), Ordering::Relaxed);
    }

    /// Sets the bit, so that the word changes under the line's mutex only. Returns the permits that are free.
    fn freeze(&self, _: &MutexGuard<'_, Waiters>) -> u64 {
        self.state.fetch_or(QUEUED, Ordering::Acquire) / ONE
    }

    /// Takes the permits or joins the line, for as long as `budget` lasts.
    fn take_or_enqueue(
        &self,
        count: u64,
        budget: Budget,
        waker: &Waker,
    ) -> Result<Option<(WaiterId, Time)>, AcquireError> {
        let since = now();
        let until = budget.remaining().map_or(NO_DEADLINE, |left| since + left);
        let mut line = lock(&self.waiters);
        if line.list.len() == 0 || line.woken.is_some() {
            // Nobody is in the line, or those who are have somebody on the way who sees to them: as if from outside, but the bit
            // must be there before anyone waits for nothing else.
            let mut state = self.state.load(Ordering::Relaxed);
            loop {
                if state & QUEUED == 0 && state / ONE >= count {
                    let less = state - count * ONE;
                    match self.state.compare_exchange_weak(state, less, Ordering::Acquire, Ordering::Relaxed) {
                        Ok(_) => return Ok(None),
                        Err(newer) => state = newer,
                    }
                } else if line.closed {
                    return Err(AcquireError::Closed);
                } else if state & QUEUED != 0 || line.woken.is_some() {
                    break;
                } else {
                    match self.state.compare_exchange_weak(state, state | QUEUED, Ordering::Relaxed, Ordering::Relaxed)
                    {
                        Ok(_) => break,
                        Err(newer) => state = newer,
                    }
                }
            }
        } else if line.closed {
            return Err(AcquireError::Closed);
        }
        let place = line.list.push(since, until, count, Some(waker.clone()));
        self.publish(&line);
        Ok(Some((place, since)))
    }

    /// Whether a waiter was woken for permits that somebody else is quicker to take: they may be back in a moment.
    fn is_early(&self, place: WaiterId, count: u64) -> bool {
        lock(&self.waiters).list.stage(place) == WaiterStage::Woken && self.free() < count
    }

    /// Outcome of a waiter so far.
    fn poll_waiter(&self, place: WaiterId, count: u64, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let mut line = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let outcome = match line.list.stage(place) {
            WaiterStage::Waiting => {
                let before = line.list.set_waker(place, waker);
                drop(line);
                drop(before);
                return Poll::Pending;
            }
            WaiterStage::Granted => Ok(()),
            WaiterStage::Closed => Err(AcquireError::Closed),
            WaiterStage::Late => Err(AcquireError::Congested(self.refuse())),
            WaiterStage::Woken => {
                let free = self.freeze(&line);
                line.woken = None;
                if free < count {
                    let before = line.list.mark_overtaken(place, waker);
                    drop(line);
                    drop(before);
                    return Poll::Pending;
                }
                line.list.resolve(place, WaiterStage::Granted);
                self.grant(&mut line, free - count, true, &mut wakers);
                Ok(())
            }
        };
        line.list.remove(place);
        drop(line);
        wakers.wake();
        Poll::Ready(outcome)
    }

    /// A waiter goes without having been told what has become of it.
    fn cancel(&self, place: WaiterId, count: u64) {
        let mut line = lock(&self.waiters);
        let mut wakers = Wakers::default();
        let (stage, waker) = line.list.remove(place);
        match stage {
            WaiterStage::Granted => {
                drop(line);
                self.release(count);
                return;
            }
            WaiterStage::Closed | WaiterStage::Late => {}
            WaiterStage::Waiting if line.woken.is_some() => self.publish(&line),
            // The next may fit where this one did not, or has to be woken in its place.
            WaiterStage::Waiting | WaiterStage::Woken => {
                line.woken = None;
                let free = self.freeze(&line);
                self.grant(&mut line, free, false, &mut wakers);
            }
        }
        drop(line);
        drop(waker);
        wakers.wake();
    }

    /// Closes the line: waiters are told so, and so is any later one. Free permits can still be taken.
    pub(super) fn close(&self) {
        let mut line = lock(&self.waiters);
        let mut wakers = Wakers::default();
        line.closed = true;
        line.woken = None;
        while let Some(first) = line.list.first() {
            wakers.add(line.list.resolve(first.id, WaiterStage::Closed));
        }
        let free = self.freeze(&line);
        self.grant(&mut line, free, false, &mut wakers);
        drop(line);
        wakers.wake();
    }

    /// Refuses if the running request would wait too long: for the first in the line as long as that has waited, `besides` in
    /// queues behind this one, and for a core.
    pub(super) fn check(&self, besides: Nanos) -> Result<(), Congested> {
        let budget = budget::current();
        // Who has nothing left would wait for nothing but a refusal.
        let lasts = !budget.is_spent() && budget.allows(self.delay() + besides + context::run_delay());
        if budget == Budget::UNLIMITED || lasts {
            return Ok(());
        }
        Err(self.refuse())
    }

    /// Counts a refusal.
    fn refuse(&self) -> Congested {
        super::refuse(&self.counts)
    }

    /// Counts permits that were taken by somebody else's hand.
    fn count_uncontended(&self) {
        self.uncontended.add(&self.counts);
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        self.counts.count_uncontended(self.uncontended.unreported());
    }
}

/// Waits for permits. They are the caller's when it is ready, and not before: a future that is dropped has taken none.
#[must_use = "it waits when it is awaited"]
pub(super) struct Acquire<'a> {
    permits: &'a Permits,
    count: u64,
    wait: WaitPolicy,
    spins: u32,
    waiting: Option<QueuedWait>,
}

/// In the line.
#[derive(Clone, Copy)]
struct QueuedWait {
    id: WaiterId,
    since: Time,
    /// Budget that the request had spent on run queues before: what it spends there meanwhile is charged already.
    spent_on_cores: Nanos,
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(super) fn new(permits: &'a Permits, count: u64, wait: WaitPolicy, spins: u32) -> Self {
        Acquire { permits, count, wait, spins, waiting: None }
    }

    /// Whether it is in the line.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Removes a waiter that goes without having learned its outcome.
    #[cold]
    fn give_up(&self, waiting: QueuedWait) {
        charge(waiting.since, waiting.spent_on_cores);
        self.permits.counts.count_cancelled();
        self.permits.cancel(waiting.id, self.count);
    }

    /// Looks again for a moment, as long as the line is empty.
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

    /// Gives a quicker thread a moment to be done.
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

/// Charges the running request for a wait since then, less what run queues have had of it.
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
        // Who was handed what it waited for holds others up from now on: it must not linger.
        if self.permits.is_early(waiting.id, self.count) {
            self.linger();
        }
        let Poll::Ready(outcome) = self.permits.poll_waiter(waiting.id, self.count, context.waker()) else {
            return Poll::Pending;
        };
        self.waiting = None;
        let waited = charge(waiting.since, waiting.spent_on_cores);
        match outcome {
            // What it waited for its core since it was woken counts, too.
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
