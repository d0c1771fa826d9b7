//! A queue in front of a resource that a future acquires: a pool of connections, another library's
//! semaphore, a place among blocking threads. Does not contain the resource, or its order of
//! grants.

use super::permits::charge;
use super::registry;
use super::stats::{LockCounts, LockKind, LockStats};
use super::time::now;
use super::wait_list::{NO_DEADLINE, WaitList, WaiterId};
use super::{Congested, refuse};
use crate::budget;
use crate::context;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// No waiter.
const NO_WAITER: u64 = u64::MAX;

/// Rejects requests that would wait too long for a resource that this crate does not know.
///
/// A request is rejected before it waits if the oldest waiter's age exceeds the request's budget.
/// It is also rejected after the wait if the wait has spent all of its budget; the acquired value
/// is then dropped. A free resource is given whatever the budget, and outside of any request
/// nothing is rejected. Waiting is charged.
///
/// The oldest waiter's age shows the wait where waiters are served in order of arrival, as by
/// tokio's semaphore, sqlx and deadpool. Where the last is served first, the oldest waits for
/// longer than others will, and more requests are rejected.
///
/// ```
/// # #[cfg(not(loom))] {
/// use leeward_runtime::locks::AcquireQueue;
/// use std::sync::LazyLock;
/// # async fn get() -> &'static str { "a connection" }
/// # async fn handler() -> Result<(), leeward_runtime::locks::Congested> {
/// static POOL: LazyLock<AcquireQueue> = LazyLock::new(|| AcquireQueue::new("db pool"));
/// let connection = POOL.acquire(get()).await?;
/// # let _ = connection; Ok(()) }
/// # }
/// ```
pub struct AcquireQueue {
    waiters: Mutex<WaitList>,
    /// Arrival time of the first waiter; [`NO_WAITER`] without one. Written under the list's mutex,
    /// read without.
    oldest: AtomicU64,
    counts: Arc<LockCounts>,
}

impl AcquireQueue {
    /// Makes a queue. Rejections, `leeward top` and reports show the name.
    pub fn new(name: &'static str) -> Self {
        AcquireQueue {
            waiters: Mutex::new(WaitList::default()),
            oldest: AtomicU64::new(NO_WAITER),
            counts: registry::counts(name, LockKind::AcquireQueue),
        }
    }

    /// Former name of [`AcquireQueue::acquire`].
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    #[deprecated(note = "renamed to `acquire`")]
    pub async fn enter<F: Future>(&self, acquiring: F) -> Result<F::Output, Congested> {
        self.acquire(acquiring).await
    }

    /// Waits until `acquiring` is ready, unless the running request's budget would not last.
    /// Dropping this future drops `acquiring`.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the resource was acquired.
    pub async fn acquire<F: Future>(&self, acquiring: F) -> Result<F::Output, Congested> {
        let mut acquiring = pin!(acquiring);
        let first = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
        if let Poll::Ready(acquired) = first {
            self.counts.count_uncontended(1);
            return Ok(acquired);
        }
        let budget = budget::current();
        let lasts = !budget.is_spent() && budget.allows(self.delay() + context::run_delay());
        if budget != Budget::UNLIMITED && !lasts {
            return Err(refuse(&self.counts));
        }
        let mut waiting = self.join();
        // `acquiring` was just polled, and will wake this task.
        let mut joined = false;
        let acquired = poll_fn(|context| match std::mem::replace(&mut joined, true) {
            false => Poll::Pending,
            true => acquiring.as_mut().poll(context),
        })
        .await;
        waiting.served = true;
        let waited = waiting.leave();
        // The request may wait as long as its budget at the time of joining.
        if budget != Budget::UNLIMITED && budget.remaining().is_some_and(|left| waited > left) {
            return Err(refuse(&self.counts));
        }
        self.counts.count_wait(waited);
        Ok(acquired)
    }

    fn join(&self) -> QueueEntry<'_> {
        let since = now();
        let mut list = lock(&self.waiters);
        let id = list.push(since, NO_DEADLINE, 1, None);
        self.publish(&list);
        QueueEntry { queue: self, place: Some(id), since, spent_on_cores: budget::spent_on_cores(), served: false }
    }

    fn publish(&self, list: &WaitList) {
        self.oldest.store(list.first().map_or(NO_WAITER, |first| first.since.0), Ordering::Relaxed);
    }

    /// Wait of the oldest waiter; zero without one.
    pub fn delay(&self) -> Nanos {
        match self.oldest.load(Ordering::Relaxed) {
            NO_WAITER => Nanos::ZERO,
            oldest => now().since(Time(oldest)),
        }
    }

    /// Returns whether the list itself is empty, whatever is published.
    #[cfg(all(test, loom))]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiters).first().is_none()
    }

    /// The queue's name.
    pub fn name(&self) -> &'static str {
        self.counts.name
    }

    /// Statistics of the queues of this name.
    pub fn stats(&self) -> LockStats {
        self.counts.read()
    }
}

impl fmt::Debug for AcquireQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireQueue").field("name", &self.name()).field("delay", &self.delay()).finish_non_exhaustive()
    }
}

/// An entry in the queue.
struct QueueEntry<'a> {
    queue: &'a AcquireQueue,
    place: Option<WaiterId>,
    since: Time,
    spent_on_cores: Nanos,
    served: bool,
}

impl QueueEntry<'_> {
    /// Leaves the queue and returns the time spent in it. Charges it once.
    fn leave(&mut self) -> Nanos {
        let Some(id) = self.place.take() else { return Nanos::ZERO };
        let mut list = lock(&self.queue.waiters);
        let _ = list.remove(id);
        self.queue.publish(&list);
        drop(list);
        charge(self.since, self.spent_on_cores)
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.leave();
        if !self.served {
            self.queue.counts.count_cancelled();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::budget::RequestBudget;
    use std::task::{Context, Waker};
    use std::time::Duration;

    fn poll<F: Future + Unpin>(request: &mut RequestBudget, future: &mut F) -> Poll<F::Output> {
        request.enter(|| std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())))
    }

    fn pending_acquire(queue: &AcquireQueue) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Congested>> + '_>> {
        Box::pin(queue.acquire(std::future::pending::<()>()))
    }

    fn micros(count: u64) -> RequestBudget {
        RequestBudget::of(Budget::new(Nanos::from_micros(count)))
    }

    #[test]
    fn a_free_resource_is_acquired_and_a_long_queue_rejects() {
        let queue = AcquireQueue::new("line: refused");
        let mut spent = micros(0);
        assert_eq!(poll(&mut spent, &mut Box::pin(queue.acquire(std::future::ready(7)))), Poll::Ready(Ok(7)));
        let (mut patient, mut first) = (micros(60_000_000), pending_acquire(&queue));
        assert!(poll(&mut patient, &mut first).is_pending());
        std::thread::sleep(Duration::from_millis(2));
        assert!(queue.delay() >= Nanos::from_millis(2));
        let mut hurried = micros(1_000);
        assert_eq!(
            poll(&mut hurried, &mut pending_acquire(&queue)),
            Poll::Ready(Err(Congested { lock: "line: refused" }))
        );
        assert_eq!(hurried.refused(), Some("line: refused"));
        assert!(poll(&mut patient, &mut pending_acquire(&queue)).is_pending(), "it can wait");
        assert!(
            poll(&mut RequestBudget::of(Budget::UNLIMITED), &mut pending_acquire(&queue)).is_pending(),
            "nobody's request"
        );
        drop(first);
        let stats = queue.stats();
        assert_eq!((queue.delay(), stats.refused, stats.cancelled), (Nanos::ZERO, 1, 3));
    }

    #[test]
    fn a_resource_acquired_too_late_is_released() {
        let queue = AcquireQueue::new("line: late");
        let (mut hurried, mut patient) = (micros(500), micros(60_000_000));
        let mut slow = Box::pin(queue.acquire(crate::tasks::yield_now()));
        let mut other = Box::pin(queue.acquire(crate::tasks::yield_now()));
        assert!(poll(&mut hurried, &mut slow).is_pending() && poll(&mut patient, &mut other).is_pending());
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(poll(&mut hurried, &mut slow), Poll::Ready(Err(Congested { lock: "line: late" })));
        assert_eq!(poll(&mut patient, &mut other), Poll::Ready(Ok(())));
        assert!(hurried.budget().is_spent() && !patient.budget().is_spent(), "waiting is charged");
        assert_eq!((queue.stats().refused, queue.stats().contended), (1, 1));
    }
}
