//! A lock without a value and without guards, for an interface to other languages: its callers pair
//! acquiring and releasing themselves. Does not contain a check that they do.

use super::blocking::block_on;
use super::permits::{Acquire, AcquireError, Permits, WaitPolicy};
use super::stats::{LockKind, LockStats};
use super::{Congested, Spins};
use leeward_core::units::Nanos;
use std::fmt;

/// Largest number of permits: a read-write lock has this many readers at most.
const PERMITS_MAX: u64 = 1 << 30;

/// Permits that a thread acquires and releases in separate calls.
///
/// Two releases of one acquisition admit more holders than there are permits. No memory is at risk,
/// because the lock holds no value.
///
/// ```
/// use leeward_runtime::locks::RawLock;
///
/// let lock = RawLock::rwlock("table");
/// lock.acquire(1); // reads
/// assert!(!lock.try_acquire(lock.all()), "a writer needs all permits");
/// lock.release(1);
/// assert!(lock.try_acquire(lock.all()));
/// # lock.release(lock.all());
/// ```
pub struct RawLock {
    permits: Permits,
    all: u64,
}

impl RawLock {
    /// Makes a mutex: one permit.
    pub fn mutex(name: &'static str) -> Self {
        RawLock::new(name, LockKind::Mutex, 1)
    }

    /// Makes a read-write lock: a reader takes one permit, a writer [all](Self::all).
    pub fn rwlock(name: &'static str) -> Self {
        RawLock::new(name, LockKind::RwLock, PERMITS_MAX)
    }

    /// Makes a semaphore with `permits` permits, from 1 to 2^30.
    pub fn semaphore(name: &'static str, permits: u32) -> Self {
        RawLock::new(name, LockKind::Semaphore, u64::from(permits).clamp(1, PERMITS_MAX))
    }

    fn new(name: &'static str, kind: LockKind, all: u64) -> Self {
        RawLock { permits: Permits::new(name, kind, all), all }
    }

    /// Number of all permits.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Takes `count` permits, if they are free and there is no waiter.
    #[inline]
    pub fn try_acquire(&self, count: u64) -> bool {
        if self.all == 1 { self.permits.try_lock() } else { self.permits.try_acquire(count) }
    }

    /// Waits for `count` permits, however long it takes. More than [all](Self::all) count as all.
    #[inline]
    pub fn acquire(&self, count: u64) {
        if !self.try_acquire(count) {
            // A wait without a budget is never rejected.
            let _ = self.wait(count, WaitPolicy::Always);
        }
    }

    /// Waits for `count` permits, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the permits were acquired.
    #[inline]
    pub fn acquire_unless_congested(&self, count: u64) -> Result<(), Congested> {
        if self.try_acquire(count) { Ok(()) } else { self.wait(count, WaitPolicy::UnlessCongested) }
    }

    #[cold]
    fn wait(&self, count: u64, policy: WaitPolicy) -> Result<(), Congested> {
        match block_on(Acquire::new(&self.permits, count.min(self.all), policy, Spins::OF_THREADS.0)) {
            // Nothing closes these permits.
            Ok(()) | Err(AcquireError::Closed) => Ok(()),
            Err(AcquireError::Congested(congested)) => Err(congested),
        }
    }

    /// Returns `count` permits that were acquired.
    #[inline]
    pub fn release(&self, count: u64) {
        if self.all == 1 { self.permits.unlock() } else { self.permits.release(count) }
    }

    /// Wait of the oldest waiter; zero without one.
    pub fn delay(&self) -> Nanos {
        self.permits.delay()
    }

    /// The lock's name.
    pub fn name(&self) -> &'static str {
        self.permits.name()
    }

    /// Statistics of the locks of this name.
    pub fn stats(&self) -> LockStats {
        self.permits.stats()
    }
}

impl fmt::Debug for RawLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLock").field("name", &self.name()).field("free", &self.permits.free()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::budget;
    use leeward_core::budget::Budget;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn one_thread_at_a_time_holds_a_mutex() {
        let (lock, counter) = (RawLock::mutex("raw: counter"), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        lock.acquire(1);
                        // Not an atomic addition: without the lock, some would be lost.
                        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        lock.release(1);
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), 4_000);
    }

    #[test]
    fn a_spent_budget_rejects_a_wait_but_not_a_free_lock() {
        let lock = RawLock::mutex("raw: rejects");
        let (first, _) = budget::with(Budget::new(Nanos::ZERO), || lock.acquire_unless_congested(1));
        let (second, _) = budget::with(Budget::new(Nanos::ZERO), || lock.acquire_unless_congested(1));
        assert_eq!((first, second), (Ok(()), Err(Congested { lock: "raw: rejects" })));
        lock.release(1);
        assert!(lock.try_acquire(1) && !lock.try_acquire(1));
        lock.release(1);
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let lock = RawLock::rwlock("raw: table");
        assert!(lock.try_acquire(1) && lock.try_acquire(1) && !lock.try_acquire(lock.all()));
        lock.release(1);
        lock.release(1);
        lock.acquire(lock.all());
        assert!(!lock.try_acquire(1));
        lock.release(lock.all());
    }
}
