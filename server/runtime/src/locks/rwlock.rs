//! Many readers or one writer.

use super::blocking::block_on;
use super::guarded::{Alone, Guarded, Share};
use super::permits::{Permits, Wait};
use super::stats::{Kind, LockStats};
use super::{Congested, Spins, granted};
use leeward_core::units::Nanos;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Readers at once: more wait for each other, as if for a writer.
const READERS: u64 = 1 << 30;

/// A value that many readers or one writer have at a time. Waiters are served in order of arrival, so readers that come
/// after a waiting writer wait behind it, and neither kind starves the other. Don't read twice in one request: with a
/// writer waiting in between, the second read waits for the first to end.
pub struct RwLock<T: ?Sized> {
    inner: Guarded<T>,
}

impl<T> RwLock<T> {
    /// A lock around `value`. The name is what a refusal, `leeward top` and reports call it; locks of one name share their
    /// statistics.
    pub fn new(name: &'static str, value: T) -> Self {
        RwLock { inner: Guarded::new(Permits::new(name, Kind::RwLock, READERS), value) }
    }

    /// The value, when the lock is no longer needed.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized + Sync> RwLock<T> {
    /// Waits to read, however long it takes.
    #[inline]
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { share: granted(self.inner.take_share(Wait::Regardless, Spins::OF_TASKS).await) }
    }

    /// Waits to read, unless the running request's budget would not last.
    ///
    /// # Errors
    /// It would not, or has not when the turn came.
    #[inline]
    pub async fn read_unless_congested(&self) -> Result<RwLockReadGuard<'_, T>, Congested> {
        Ok(RwLockReadGuard { share: self.inner.take_share(Wait::UnlessCongested, Spins::OF_TASKS).await? })
    }

    /// As [`RwLock::read`], with the thread waiting.
    #[inline]
    pub fn read_blocking(&self) -> RwLockReadGuard<'_, T> {
        let share = match self.inner.try_share() {
            Some(share) => share,
            None => granted(block_on(self.inner.take_share(Wait::Regardless, Spins::OF_THREADS))),
        };
        RwLockReadGuard { share }
    }

    /// As [`RwLock::read_unless_congested`], with the thread waiting.
    ///
    /// # Errors
    /// The running request's budget would not last, or has not when the turn came.
    #[inline]
    pub fn read_blocking_unless_congested(&self) -> Result<RwLockReadGuard<'_, T>, Congested> {
        let share = match self.inner.try_share() {
            Some(share) => share,
            None => block_on(self.inner.take_share(Wait::UnlessCongested, Spins::OF_THREADS))?,
        };
        Ok(RwLockReadGuard { share })
    }

    /// Reads, if no writer has the lock or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.inner.try_share().map(|share| RwLockReadGuard { share })
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits to write, however long it takes.
    #[inline]
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { alone: granted(self.inner.take_alone(Wait::Regardless, Spins::OF_TASKS).await) }
    }

    /// Waits to write, unless the running request's budget would not last.
    ///
    /// # Errors
    /// It would not, or has not when the turn came.
    #[inline]
    pub async fn write_unless_congested(&self) -> Result<RwLockWriteGuard<'_, T>, Congested> {
        Ok(RwLockWriteGuard { alone: self.inner.take_alone(Wait::UnlessCongested, Spins::OF_TASKS).await? })
    }

    /// As [`RwLock::write`], with the thread waiting.
    #[inline]
    pub fn write_blocking(&self) -> RwLockWriteGuard<'_, T> {
        let alone = match self.inner.try_alone() {
            Some(alone) => alone,
            None => granted(block_on(self.inner.take_alone(Wait::Regardless, Spins::OF_THREADS))),
        };
        RwLockWriteGuard { alone }
    }

    /// As [`RwLock::write_unless_congested`], with the thread waiting.
    ///
    /// # Errors
    /// The running request's budget would not last, or has not when the turn came.
    #[inline]
    pub fn write_blocking_unless_congested(&self) -> Result<RwLockWriteGuard<'_, T>, Congested> {
        let alone = match self.inner.try_alone() {
            Some(alone) => alone,
            None => block_on(self.inner.take_alone(Wait::UnlessCongested, Spins::OF_THREADS))?,
        };
        Ok(RwLockWriteGuard { alone })
    }

    /// Writes, if the lock is free and the line is empty.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.inner.try_alone().map(|alone| RwLockWriteGuard { alone })
    }

    /// The value, through the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// How long the oldest waiter has waited, reader or writer; zero without one.
    pub fn delay(&self) -> Nanos {
        self.inner.permits().delay()
    }

    /// Its name.
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

/// The value of an [`RwLock`] for reading, until it is dropped.
#[must_use = "the lock is free again when it is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    share: Share<'a, T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.share
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The value of an [`RwLock`] for writing, until it is dropped.
#[must_use = "the lock is free again when it is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    alone: Alone<'a, T>,
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.alone
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.alone
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
