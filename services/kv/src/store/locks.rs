//! The store's locks; no other file depends on their type.
//!
//! They are the runtime's latency-aware locks, and a waiting thread blocks. Every critical section
//! is short and waits for nothing but another lock.

pub(super) use leeward_runtime::locks::MutexGuard;
use leeward_runtime::locks::{Congested, Mutex};

/// A lock whose wait a request may decline.
///
/// The limit is the running request's budget ([`leeward_runtime::budget`]).
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Lock(Mutex::new(name, value))
    }

    /// Waits without limit.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock_blocking()
    }

    /// Does not wait.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Waits unless the wait would cost more than the budget has.
    pub(super) fn lock_unless_congested(&self) -> Result<MutexGuard<'_, T>, Congested> {
        self.0.lock_blocking_unless_congested()
    }
}
