//! A read-write lock.

use super::blocking::block_on;
use super::permit_cell::{ExclusiveGuard, PermitCell, SharedGuard};
use super::permits::{Permits, WaitPolicy};
use super::stats::{LockKind, LockStats};
use super::{Congested, Spins, expect_granted};
use leeward_core::units::Nanos;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Maximum concurrent readers: more wait for each other, as if for a writer.
const READERS: u64 = 1 << 30;

/// A value that many readers or one writer have at a time. Waiters are served in order of arrival.
/// Readers that arrive after a waiting writer wait behind it, so neither kind starves the other.
/// Don't read twice in one request: with a writer waiting in between, the second read waits for the
/// first to end.
pub struct RwLock<T: ?Sized> {
    inner: PermitCell<T>,
}

impl<T> RwLock<T> {
    /// Makes a lock around `value`. Rejections, `leeward top` and reports show the name; locks of
    /// one name share their statistics.
    pub fn new(name: &'static str, value: T) -> Self {
        RwLock { inner: PermitCell::new(Permits::new(name, LockKind::RwLock, READERS), value) }
    }

    /// Returns the value and ends the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized + Sync> RwLock<T> {
    /// Waits to read, however long it takes.
    #[inline]
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { inner: expect_granted(self.inner.acquire_shared(WaitPolicy::Always, Spins::OF_TASKS).await) }
    }

    /// Waits to read, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the lock was acquired.
    #[inline]
    pub async fn read_unless_congested(&self) -> Result<RwLockReadGuard<'_, T>, Congested> {
        Ok(RwLockReadGuard { inner: self.inner.acquire_shared(WaitPolicy::UnlessCongested, Spins::OF_TASKS).await? })
    }

    /// Reads as [`RwLock::read`] does, blocking the thread.
    #[inline]
    pub fn read_blocking(&self) -> RwLockReadGuard<'_, T> {
        let guard = match self.inner.try_shared() {
            Some(guard) => guard,
            None => expect_granted(block_on(self.inner.acquire_shared(WaitPolicy::Always, Spins::OF_THREADS))),
        };
        RwLockReadGuard { inner: guard }
    }

    /// Reads as [`RwLock::read_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last, or did not last until the lock was acquired.
    #[inline]
    pub fn read_blocking_unless_congested(&self) -> Result<RwLockReadGuard<'_, T>, Congested> {
        let guard = match self.inner.try_shared() {
            Some(guard) => guard,
            None => block_on(self.inner.acquire_shared(WaitPolicy::UnlessCongested, Spins::OF_THREADS))?,
        };
        Ok(RwLockReadGuard { inner: guard })
    }

    /// Reads, if no writer has the lock or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.inner.try_shared().map(|guard| RwLockReadGuard { inner: guard })
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits to write, however long it takes.
    #[inline]
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            inner: expect_granted(self.inner.acquire_exclusive(WaitPolicy::Always, Spins::OF_TASKS).await),
        }
    }

    /// Waits to write, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the lock was acquired.
    #[inline]
    pub async fn write_unless_congested(&self) -> Result<RwLockWriteGuard<'_, T>, Congested> {
        Ok(RwLockWriteGuard {
            inner: self.inner.acquire_exclusive(WaitPolicy::UnlessCongested, Spins::OF_TASKS).await?,
        })
    }

    /// Writes as [`RwLock::write`] does, blocking the thread.
    #[inline]
    pub fn write_blocking(&self) -> RwLockWriteGuard<'_, T> {
        let guard = match self.inner.try_exclusive() {
            Some(guard) => guard,
            None => expect_granted(block_on(self.inner.acquire_exclusive(WaitPolicy::Always, Spins::OF_THREADS))),
        };
        RwLockWriteGuard { inner: guard }
    }

    /// Writes as [`RwLock::write_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last, or did not last until the lock was acquired.
    #[inline]
    pub fn write_blocking_unless_congested(&self) -> Result<RwLockWriteGuard<'_, T>, Congested> {
        let guard = match self.inner.try_exclusive() {
            Some(guard) => guard,
            None => block_on(self.inner.acquire_exclusive(WaitPolicy::UnlessCongested, Spins::OF_THREADS))?,
        };
        Ok(RwLockWriteGuard { inner: guard })
    }

    /// Writes, if the lock is free and has no waiters.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.inner.try_exclusive().map(|guard| RwLockWriteGuard { inner: guard })
    }

    /// Returns the value through an exclusive reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Wait of the oldest waiter, reader or writer; zero without one.
    pub fn delay(&self) -> Nanos {
        self.inner.permits().delay()
    }

    /// The lock's name.
    pub fn name(&self) -> &'static str {
        self.inner.permits().name()
    }

    /// Statistics of the locks of this name.
    pub fn stats(&self) -> LockStats {
        self.inner.permits().stats()
    }
}

impl<T: ?Sized + Sync + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RwLock");
        debug.field("name", &self.name());
        match self.try_read() {
            Some(guard) => debug.field("value", &&*guard).finish(),
            None => debug.finish_non_exhaustive(),
        }
    }
}

/// Access to the value of an [`RwLock`] for reading, until it is dropped.
#[must_use = "the lock is free again when it is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: SharedGuard<'a, T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Access to the value of an [`RwLock`] for writing, until it is dropped.
#[must_use = "the lock is free again when it is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: ExclusiveGuard<'a, T>,
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
