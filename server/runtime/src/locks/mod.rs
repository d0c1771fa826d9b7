//! Locks for requests with a delay objective. A lock knows how long a request would wait, and at
//! once rejects one that can't wait that long (active synchronization queue management: thesis
//! §2.3.2 and §2.4, Hoover §3.4).
//!
//! | | for tasks | for threads and plain handlers |
//! |---|---|---|
//! | may be rejected | `lock_unless_congested().await?` | `lock_blocking_unless_congested()?` |
//! | never rejected | `lock().await` | `lock_blocking()` |
//! | never waits | `try_lock()` | `try_lock()` |
//!
//! [`RwLock`], [`Condvar`], [`Semaphore`] and [`channel`](channel()) have the same forms. An
//! [`AcquireQueue`] does the same in front of other libraries' resources.
//!
//! ```
//! use leeward_core::budget::Budget;
//! use leeward_core::units::Nanos;
//! use leeward_runtime::budget;
//! use leeward_runtime::locks::{Congested, Mutex};
//!
//! let counter = Mutex::new("counter", 0);
//! // As a request that may spend 100 us in queues. A server opens this scope for each request.
//! let budget = Budget::new(Nanos::from_micros(100));
//! let (counted, _left) = budget::with(budget, || -> Result<i32, Congested> {
//!     let mut counter = counter.lock_blocking_unless_congested()?;
//!     *counter += 1;
//!     Ok(*counter)
//! });
//! assert_eq!(counted, Ok(1));
//! ```
//!
//! **Rejection.** A request is rejected before it waits if the oldest waiter has waited for longer
//! than the request's remaining budget ([`crate::budget`]). The delay of the run queue is included,
//! since a task waits there once it has the lock. A request is also rejected when its turn comes if
//! it has spent all of its budget by then. The age of the oldest waiter shows the wait of the
//! first, not of the last: at twice the lock's capacity the last waits twice as long. The published
//! algorithm has only the first of these two checks. With both, each holder has waited within its
//! budget, and the lock's time goes to requests that are still useful. A condition variable checks
//! only before the wait. A free lock is taken whatever the budget. Outside of any request there is
//! no budget, and nothing is rejected.
//!
//! **Charges.** A request is charged for its wait in the queue and then for a core, but not for its
//! time with the lock.
//!
//! **Fairness.** Waiters are served in order of arrival. When a lock is released, its first waiter
//! is woken, and a quicker thread may take the lock once before it. After that the lock is handed
//! to the waiter. No waiter starves, and no lock is idle while a waiter wakes up.
//!
//! **Dropping** a waiting future leaves nothing behind, and passes on a grant that it did not see.
//! **Panics** don't poison: the guard is dropped, and the lock is free.
//!
//! **Threads.** A guard may be held across an `.await` and dropped on another thread. A `_blocking`
//! form in a task blocks its core. If a task of that core holds the lock, it blocks for ever.

mod acquire_queue;
mod blocking;
mod channel;
mod condvar;
#[cfg(all(test, loom))]
mod model;
mod mutex;
mod permit_cell;
mod permits;
mod raw;
mod registry;
mod rwlock;
mod semaphore;
mod stats;
mod time;
mod wait_list;

pub use acquire_queue::AcquireQueue;
// Former name, for programs that use it.
#[doc(hidden)]
pub use acquire_queue::AcquireQueue as Line;
pub use channel::{Receiver, SendError, Sender, channel};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use raw::RawLock;
pub use registry::{NAMES, OTHERS, stats};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use stats::{BUCKETS, LockKind, LockStats};

/// Rejection by a lock: the running request's budget would not have lasted, or did not last. Time
/// waited is charged.
///
/// A handler returns it with `?`, and the request ends as rejected by [`lock`](Self::lock).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Congested {
    /// The lock's name.
    pub lock: &'static str,
}

impl std::fmt::Display for Congested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the lock {:?} is congested: the request's budget would not last", self.lock)
    }
}

impl std::error::Error for Congested {}

/// Counts a rejection of the running request.
fn refuse(counts: &stats::LockCounts) -> Congested {
    counts.count_refusal();
    crate::budget::note_refused(counts.name);
    Congested { lock: counts.name }
}

/// Number of times that a waiter spins before it joins the queue.
#[derive(Clone, Copy)]
struct Spins(u32);

impl Spins {
    const OF_TASKS: Spins = Spins(permits::SPINS_OF_TASKS);
    const OF_THREADS: Spins = Spins(permits::SPINS_OF_THREADS);
}

/// Unwraps the outcome of a wait without a budget, which is never rejected.
fn expect_granted<T>(outcome: Result<T, Congested>) -> T {
    match outcome {
        Ok(granted) => granted,
        Err(_) => unreachable!("only those who ask for it are refused"),
    }
}
