//! A value behind permits: the only place here with unsafe code. The holder of all permits has the value alone; a
//! holder of one permit shares it.
#![allow(unsafe_code)]

use super::permits::{Acquire, AcquireError, Permits, WaitPolicy};
use super::{Congested, Spins};
use std::cell::UnsafeCell;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// See the module.
pub(super) struct PermitCell<T: ?Sized> {
    permits: Permits,
    /// All permits there are.
    all: u64,
    value: UnsafeCell<T>,
}

// SAFETY: through `&Guarded` threads get `&mut T` one after the other (`T: Send`). `&T` for several at once comes only from
// `Guarded::share`, which asks for `T: Sync` by itself.
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

    /// All permits, if they are free.
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

    /// Private: the caller has just acquired all permits, and nothing came in between.
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
        if let Some(share) = self.try_shared() {
            return Ok(share);
        }
        not_closed(Acquire::new(&self.permits, 1, wait, spins.0).await)?;
        Ok(self.shared())
    }

    /// Private, as [`Guarded::alone`].
    #[inline]
    fn shared(&self) -> SharedGuard<'_, T> {
        SharedGuard { from: self, shares: PhantomData }
    }
}

/// Waits for all permits. Written by hand, for a free lock is to cost its compare-and-swap and no more.
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
            && let Some(alone) = self.from.try_exclusive()
        {
            return Poll::Ready(Ok(alone));
        }
        match Pin::new(&mut self.acquire).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => Poll::Ready(not_closed(outcome).map(|()| self.from.exclusive())),
        }
    }
}

/// Locks are never closed.
fn not_closed(outcome: Result<(), AcquireError>) -> Result<(), Congested> {
    match outcome {
        Ok(()) => Ok(()),
        Err(AcquireError::Congested(congested)) => Err(congested),
        Err(AcquireError::Closed) => unreachable!("nobody closes a lock"),
    }
}

/// All permits: the value is its holder's alone.
pub(super) struct ExclusiveGuard<'a, T: ?Sized> {
    from: &'a PermitCell<T>,
    /// As good as `&mut T`: it goes to other threads if that may, and is looked at from others if that may.
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
        // SAFETY: this guard holds all permits until it is dropped, so no other guard exists; a `&mut` from this one borrows it.
        unsafe { &*self.from.value.get() }
    }
}

impl<T: ?Sized> DerefMut for ExclusiveGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the `&mut self` keeps this guard's other references away.
        unsafe { &mut *self.from.value.get() }
    }
}

impl<T: ?Sized> Drop for ExclusiveGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.from.all == 1 { self.from.permits.unlock() } else { self.from.permits.release(self.from.all) }
    }
}

/// A permit of many: the value is shared.
pub(super) struct SharedGuard<'a, T: ?Sized> {
    from: &'a PermitCell<T>,
    /// As good as `&T`.
    shares: PhantomData<&'a T>,
}

impl<T: ?Sized> Deref for SharedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds a permit until it is dropped, so nobody has all of them, and no `&mut` exists.
        unsafe { &*self.from.value.get() }
    }
}

impl<T: ?Sized> Drop for SharedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.from.permits.release(1);
    }
}
