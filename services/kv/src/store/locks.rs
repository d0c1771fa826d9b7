//! The store's locks, in one place; no other file knows what they are made of. They are the runtime's latency-aware
//! ones, with the thread waiting: every critical section here is short, and none waits for anything but another lock.

pub(super) use leeward_runtime::locks::MutexGuard;
use leeward_runtime::locks::{Congested, Mutex};

/// A lock that a request may refuse to wait for. What it may spend is the running request's budget
/// ([`leeward_runtime::budget`]).
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Lock(Mutex::new(name, value))
    }

    /// Waits as long as it takes.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock_blocking()
    }

    /// Does not wait.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Waits unless that would cost more than the budget has.
    pub(super) fn lock_unless_congested(&self) -> Result<MutexGuard<'_, T>, Congested> {
        self.0.lock_blocking_unless_congested()
    }
}
