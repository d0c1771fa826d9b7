//! A value behind permits: the only place in the locks with unsafe code. The holder of all permits
//! has exclusive access; a holder of one permit has shared access.
#![allow(unsafe_code)]

use super::permits::{Acquire, AcquireError, Permits, WaitPolicy};
use super::{Congested, Spins};
use std::cell::UnsafeCell;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value behind permits. See the module.
pub(super) struct PermitCell<T: ?Sized> {
    permits: Permits,
    /// Number of all permits.
    all: u64,
    value: UnsafeCell<T>,
}

// SAFETY: through `&PermitCell` threads get `&mut T` one after the other (`T: Send`). Only
// `PermitCell::shared` gives `&T` to several at once, and it requires `T: Sync` itself.
unsafe impl<T: ?Sized + Send> Sync for PermitCell<T> {}

impl<T> PermitCell<T> {
    pub(super) fn new(permits: Permits, value: T) -> Self {
        PermitCell { all: permits.free(), permits, value: UnsafeCell::new(value) }
    }

    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> PermitCell<T> {
    pub(super) fn permits(&self) -> &Permits {
        &self.permits
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes all permits, if they are free.
    #[inline]
    pub(super) fn try_exclusive(&self) -> Option<ExclusiveGuard<'_, T>> {
        let acquired = if self.all == 1 { self.permits.try_lock() } else { self.permits.try_acquire(self.all) };
        acquired.then(|| self.exclusive())
    }

    /// Waits for all permits.
    #[inline]
    pub(super) fn acquire_exclusive(&self, wait: WaitPolicy, spins: Spins) -> AcquireExclusive<'_, T> {
        AcquireExclusive { from: self, acquire: Acquire::new(&self.permits, self.all, wait, spins.0) }
    }

    /// Private: the caller has just acquired all permits.
    #[inline]
    fn exclusive(&self) -> ExclusiveGuard<'_, T> {
        ExclusiveGuard { from: self, owns: PhantomData }
    }
}

impl<T: ?Sized + Sync> PermitCell<T> {
    /// Takes a permit, if one is free.
    #[inline]
    pub(super) fn try_shared(&self) -> Option<SharedGuard<'_, T>> {
        self.permits.try_acquire(1).then(|| self.shared())
    }

    /// Waits for one permit.
    #[inline]
    pub(super) async fn acquire_shared(&self, wait: WaitPolicy, spins: Spins) -> Result<SharedGuard<'_, T>, Congested> {
        if let Some(guard) = self.try_shared() {
            return Ok(guard);
        }
        not_closed(Acquire::new(&self.permits, 1, wait, spins.0).await)?;
        Ok(self.shared())
    }

    /// Private: the caller has just acquired a permit.
    #[inline]
    fn shared(&self) -> SharedGuard<'_, T> {
        SharedGuard { from: self, shares: PhantomData }
    }
}

/// Waits for all permits. Written by hand, so that a free lock costs only its compare-and-swap.
#[must_use = "it waits when it is awaited"]
pub(super) struct AcquireExclusive<'a, T: ?Sized> {
    from: &'a PermitCell<T>,
    acquire: Acquire<'a>,
}

impl<'a, T: ?Sized> Future for AcquireExclusive<'a, T> {
    type Output = Result<ExclusiveGuard<'a, T>, Congested>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.acquire.is_waiting()
            && let Some(guard) = self.from.try_exclusive()
        {
            return Poll::Ready(Ok(guard));
        }
        match Pin::new(&mut self.acquire).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => Poll::Ready(not_closed(outcome).map(|()| self.from.exclusive())),
        }
    }
}

/// Unwraps an outcome, since locks are never closed.
fn not_closed(outcome: Result<(), AcquireError>) -> Result<(), Congested> {
    match outcome {
        Ok(()) => Ok(()),
        Err(AcquireError::Congested(congested)) => Err(congested),
        Err(AcquireError::Closed) => unreachable!("nobody closes a lock"),
    }
}

/// All permits: exclusive access to the value.
pub(super) struct ExclusiveGuard<'a, T: ?Sized> {
    from: &'a PermitCell<T>,
    /// Makes the guard `Send` and `Sync` under the same conditions as `&mut T`.
    owns: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> ExclusiveGuard<'a, T> {
    pub(super) fn source(&self) -> &'a PermitCell<T> {
        self.from
    }
}

impl<T: ?Sized> Deref for ExclusiveGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds all permits until it is dropped, so no other guard exists. A
        // `&mut` from this guard borrows it.
        unsafe { &*self.from.value.get() }
    }
}

impl<T: ?Sized> DerefMut for ExclusiveGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` excludes this guard's other references.
        unsafe { &mut *self.from.value.get() }
    }
}

impl<T: ?Sized> Drop for ExclusiveGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.from.all == 1 { self.from.permits.unlock() } else { self.from.permits.release(self.from.all) }
    }
}

/// One permit of many: shared access to the value.
pub(super) struct SharedGuard<'a, T: ?Sized> {
    from: &'a PermitCell<T>,
    /// Makes the guard `Send` and `Sync` under the same conditions as `&T`.
    shares: PhantomData<&'a T>,
}

impl<T: ?Sized> Deref for SharedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds a permit until it is dropped, so no guard holds all permits, and
        // no `&mut` exists.
        unsafe { &*self.from.value.get() }
    }
}

impl<T: ?Sized> Drop for SharedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.from.permits.release(1);
    }
}
