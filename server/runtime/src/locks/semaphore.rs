//! A semaphore.

use super::blocking::block_on;
use super::permits::{Acquire, AcquireError, Permits, WaitPolicy};
use super::stats::{LockKind, LockStats};
use super::{Congested, Spins, expect_granted};
use leeward_core::units::Nanos;
use std::fmt;

/// Admits a bounded number of holders at once. Waiters are served in order of arrival, so one that
/// wants many permits comes before a later one that wants few.
///
/// ```
/// use leeward_runtime::locks::Semaphore;
///
/// let disks = Semaphore::new("disks", 2);
/// let (one, two) = (disks.acquire_blocking(), disks.acquire_blocking());
/// assert!(disks.try_acquire().is_none());
/// drop(one);
/// assert!(disks.try_acquire().is_some());
/// # drop(two);
/// ```
pub struct Semaphore {
    permits: Permits,
    all: u64,
}

impl Semaphore {
    /// Makes a semaphore with `permits` permits (below 2^32). Rejections, `leeward top` and reports
    /// show the name.
    pub fn new(name: &'static str, permits: u32) -> Self {
        Semaphore { permits: Permits::new(name, LockKind::Semaphore, permits.into()), all: permits.into() }
    }

    /// Waits for a permit, however long it takes.
    pub async fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1).await
    }

    /// Waits for a permit, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the permit was acquired.
    pub async fn acquire_unless_congested(&self) -> Result<Permit<'_>, Congested> {
        self.acquire_many_unless_congested(1).await
    }

    /// Waits for `count` permits at once.
    ///
    /// # Panics
    /// `count` exceeds the number of all permits.
    pub async fn acquire_many(&self, count: u32) -> Permit<'_> {
        expect_granted(self.take(count, WaitPolicy::Always, Spins::OF_TASKS).await)
    }

    /// Waits for `count` permits at once, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the permits were acquired.
    ///
    /// # Panics
    /// `count` exceeds the number of all permits.
    pub async fn acquire_many_unless_congested(&self, count: u32) -> Result<Permit<'_>, Congested> {
        self.take(count, WaitPolicy::UnlessCongested, Spins::OF_TASKS).await
    }

    /// Acquires as [`Semaphore::acquire`] does, blocking the thread.
    pub fn acquire_blocking(&self) -> Permit<'_> {
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        expect_granted(block_on(self.take(1, WaitPolicy::Always, Spins::OF_THREADS)))
    }

    /// Acquires as [`Semaphore::acquire_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last, or did not last until the permit was acquired.
    pub fn acquire_blocking_unless_congested(&self) -> Result<Permit<'_>, Congested> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        block_on(self.take(1, WaitPolicy::UnlessCongested, Spins::OF_THREADS))
    }

    /// Takes a permit, if one is free and there is no waiter.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.permits.try_acquire(1).then(|| Permit { semaphore: self, count: 1 })
    }

    /// Permits that are free at this moment.
    pub fn free(&self) -> u64 {
        self.permits.free()
    }

    /// Wait of the oldest waiter; zero without one.
    pub fn delay(&self) -> Nanos {
        self.permits.delay()
    }

    /// The semaphore's name.
    pub fn name(&self) -> &'static str {
        self.permits.name()
    }

    /// Statistics of the semaphores of this name.
    pub fn stats(&self) -> LockStats {
        self.permits.stats()
    }

    async fn take(&self, count: u32, wait: WaitPolicy, spins: Spins) -> Result<Permit<'_>, Congested> {
        let count = u64::from(count);
        assert!(count <= self.all, "{count} permits of {}: this would wait for ever", self.all);
        match Acquire::new(&self.permits, count, wait, spins.0).await {
            Ok(()) => Ok(Permit { semaphore: self, count }),
            Err(AcquireError::Congested(congested)) => Err(congested),
            Err(AcquireError::Closed) => unreachable!("nobody closes a semaphore"),
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("name", &self.name()).field("free", &self.free()).finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`], until it is dropped.
#[must_use = "the permit is returned when it is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: u64,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.permits.release(self.count);
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("of", &self.semaphore.name()).field("count", &self.count).finish()
    }
}
