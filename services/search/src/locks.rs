//! The locks of this service, in one place: which kind they are is decided here.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

/// A request that would have to wait for longer than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The lock.
    pub lock: &'static str,
}

/// A stand-in that never refuses: waits by asking again and again.
pub(super) struct Lock<T>(Mutex<Option<T>>);

pub(super) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    value: Option<T>,
}

impl<T> Lock<T> {
    pub(super) fn new(_name: &'static str, value: T) -> Self {
        Lock(Mutex::new(Some(value)))
    }

    pub(super) async fn lock(&self) -> Guard<'_, T> {
        let value = poll_fn(|context| match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(value) => Poll::Ready(value),
            None => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        });
        let value = Some(value.await);
        Guard { lock: self, value }
    }

    pub(super) async fn lock_unless_congested(&self) -> Result<Guard<'_, T>, Refused> {
        Ok(self.lock().await)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        *self.lock.0.lock().unwrap_or_else(PoisonError::into_inner) = self.value.take();
    }
}
