//! The store's locks, in one place: what they are made of is nobody else's business.

use leeward_control::budget::Budget;
use leeward_control::units::Nanos;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// A lock that a request may refuse to wait for.
pub(super) struct Lock<T> {
    name: &'static str,
    inner: std::sync::Mutex<T>,
}

/// A lock that would have cost the request more than its budget. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The lock's name.
    pub lock: &'static str,
}

impl<T> Lock<T> {
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Lock { name, inner: std::sync::Mutex::new(value) }
    }

    /// Waits as long as it takes.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        // Whoever panicked has left plain numbers, each of them whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does not wait.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits unless that would cost more than the budget has; takes off what it has waited.
    pub(super) fn lock_unless_congested(&self, budget: &mut Budget) -> Result<MutexGuard<'_, T>, Refused> {
        if let Some(guard) = self.try_lock() {
            return Ok(guard);
        }
        if budget.remaining() == Some(Nanos::ZERO) {
            return Err(Refused { lock: self.name });
        }
        let began = Instant::now();
        let guard = self.lock();
        budget.charge(Nanos(began.elapsed().as_nanos() as u64));
        Ok(guard)
    }
}
