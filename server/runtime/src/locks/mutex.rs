//! A mutex.

use super::blocking::block_on;
use super::permit_cell::{AcquireExclusive, ExclusiveGuard, PermitCell};
use super::permits::{Permits, WaitPolicy};
use super::stats::{LockKind, LockStats};
use super::{Congested, Spins, expect_granted};
use leeward_core::units::Nanos;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value that one holder has at a time. Acquiring a free mutex is one compare-and-swap, and so is
/// releasing it without waiters.
///
/// ```
/// use leeward_runtime::locks::{Congested, Mutex};
///
/// struct Account { balance: Mutex<i64> }
///
/// async fn pay(account: &Account, amount: i64) -> Result<(), Congested> {
///     // Rejected at once if the request can't wait that long: nothing has happened yet.
///     let mut balance = account.balance.lock_unless_congested().await?;
///     *balance -= amount;
///     Ok(())
/// }
/// # let account = Account { balance: Mutex::new("balance", 0) };
/// # pay(&account, 3);
/// ```
pub struct Mutex<T: ?Sized> {
    inner: PermitCell<T>,
}

impl<T> Mutex<T> {
    /// Makes a mutex around `value`. Rejections, `leeward top` and reports show the name; mutexes
    /// of one name share their statistics.
    pub fn new(name: &'static str, value: T) -> Self {
        Mutex { inner: PermitCell::new(Permits::new(name, LockKind::Mutex, 1), value) }
    }

    /// Returns the value and ends the mutex.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits however long it takes, for work that must not be rejected.
    #[inline]
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        expect_granted(self.take(WaitPolicy::Always, Spins::OF_TASKS).await)
    }

    /// Waits, unless the running request's budget would not last.
    ///
    /// # Errors
    /// The budget would not last, or did not last until the mutex was acquired.
    #[inline]
    pub fn lock_unless_congested(&self) -> impl Future<Output = Result<MutexGuard<'_, T>, Congested>> {
        self.take(WaitPolicy::UnlessCongested, Spins::OF_TASKS)
    }

    /// Locks as [`Mutex::lock`] does, blocking the thread.
    #[inline]
    pub fn lock_blocking(&self) -> MutexGuard<'_, T> {
        expect_granted(self.take_blocking(WaitPolicy::Always))
    }

    /// Locks as [`Mutex::lock_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last, or did not last until the mutex was acquired.
    #[inline]
    pub fn lock_blocking_unless_congested(&self) -> Result<MutexGuard<'_, T>, Congested> {
        self.take_blocking(WaitPolicy::UnlessCongested)
    }

    /// Locks the mutex, if it is free and has no waiters.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_exclusive().map(|guard| MutexGuard { inner: guard })
    }

    /// Returns the value through an exclusive reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Wait of the oldest waiter; zero without one.
    pub fn delay(&self) -> Nanos {
        self.inner.permits().delay()
    }

    /// The mutex's name.
    pub fn name(&self) -> &'static str {
        self.inner.permits().name()
    }

    /// Statistics of the mutexes of this name.
    pub fn stats(&self) -> LockStats {
        self.inner.permits().stats()
    }

    #[inline]
    fn take(&self, wait: WaitPolicy, spins: Spins) -> AcquireMutex<'_, T> {
        AcquireMutex(self.inner.acquire_exclusive(wait, spins))
    }

    #[inline]
    fn take_blocking(&self, wait: WaitPolicy) -> Result<MutexGuard<'_, T>, Congested> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.wait_blocking(wait),
        }
    }

    #[cold]
    fn wait_blocking(&self, wait: WaitPolicy) -> Result<MutexGuard<'_, T>, Congested> {
        block_on(self.take(wait, Spins::OF_THREADS))
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        debug.field("name", &self.name());
        match self.try_lock() {
            Some(guard) => debug.field("value", &&*guard).finish(),
            None => debug.finish_non_exhaustive(),
        }
    }
}

/// Waits for the mutex.
struct AcquireMutex<'a, T: ?Sized>(AcquireExclusive<'a, T>);

impl<'a, T: ?Sized> Future for AcquireMutex<'a, T> {
    type Output = Result<MutexGuard<'a, T>, Congested>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|guard| MutexGuard { inner: guard })
    }
}

/// Access to the value of a [`Mutex`], until it is dropped.
#[must_use = "the mutex is free again when it is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: ExclusiveGuard<'a, T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Waits for the same mutex again.
    pub(super) async fn lock_again(mutex: &'a PermitCell<T>) -> MutexGuard<'a, T> {
        MutexGuard { inner: expect_granted(mutex.acquire_exclusive(WaitPolicy::Always, Spins::OF_TASKS).await) }
    }

    pub(super) fn mutex(&self) -> &'a PermitCell<T> {
        self.inner.source()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
