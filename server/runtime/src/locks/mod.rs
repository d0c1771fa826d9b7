//! Locks for requests that have a target delay: a lock knows how long a request waits for it, and refuses at once a
//! request that can't wait that long (active synchronization queue management: thesis §2.3.2 and §2.4, Hoover §3.4).
//!
//! | | for tasks | for threads and plain handlers |
//! |---|---|---|
//! | may be refused | `lock_unless_congested().await?` | `lock_blocking_unless_congested()?` |
//! | never refused | `lock().await` | `lock_blocking()` |
//! | never waits | `try_lock()` | `try_lock()` |
//!
//! and alike for [`RwLock`], [`Condvar`], [`Semaphore`] and [`channel`](channel()). A [`Line`] makes the same of what other libraries wait for.
//!
//! ```
//! use leeward_core::budget::Budget;
//! use leeward_core::units::Nanos;
//! use leeward_runtime::budget;
//! use leeward_runtime::locks::{Congested, Mutex};
//!
//! let counter = Mutex::new("counter", 0);
//! // As a request that may spend 100 us in queues; a server opens this scope for each of its requests.
//! let (counted, _left) = budget::with(Budget::of(Nanos::from_micros(100)), || -> Result<i32, Congested> {
//!     let mut counter = counter.lock_blocking_unless_congested()?;
//!     *counter += 1;
//!     Ok(*counter)
//! });
//! assert_eq!(counted, Ok(1));
//! ```
//!
//! **When it refuses.** Before waiting, if the oldest waiter has waited for longer than the request may still spend
//! ([`crate::budget`]), the delay of the run queue included, which a task pays when it has the lock. And when its turn comes, if
//! it has spent all of its budget by then: the age of the oldest tells what the first waits, not what the last will, and with
//! twice the load that a lock can do the last waits twice as long. Only the first of the two is published; with both, who gets
//! the lock has waited within its budget, and the lock's time goes to requests that are of use (a condvar asks
//! before the wait only). What is free is taken whatever
//! the budget. Outside of any request there is no budget, and nothing is refused.
//!
//! **What it charges.** Waiting, in the line and then for a core, and nothing else: not the time with the lock.
//!
//! **Fairness.** Those who wait are served in order of arrival. A lock that becomes free while the first of them is on its
//! way goes to whoever is quicker, once; then it is handed over. Nobody starves, and no lock is idle while somebody wakes up.
//!
//! **Dropping** a future that waits leaves nothing behind, and passes on what it had been given without knowing. **Panics**
//! poison nothing: the guard is dropped, the lock is free.
//!
//! **Threads.** A guard may be held across an `.await` and dropped on another thread. A `_blocking` form in a task blocks its
//! core; if what it waits for is held by a task of that core, for ever.

mod acquire_queue;
mod blocking;
mod channel;
mod condvar;
#[cfg(all(test, loom))]
mod model;
mod mutex;
mod permit_cell;
mod permits;
mod registry;
mod rwlock;
mod semaphore;
mod stats;
mod time;
mod wait_list;

pub use acquire_queue::AcquireQueue;
pub use channel::{Receiver, SendError, Sender, channel};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use registry::{NAMES, OTHERS, stats};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use stats::{BUCKETS, LockKind, LockStats};

/// A refusal: the running request's budget would not have lasted for this lock, or has not. What was waited is charged.
///
/// A handler returns it with `?`, and the request ends as a drop for [`lock`](Self::lock).
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

/// Counts a refusal of the running request.
fn refuse(counts: &stats::LockCounts) -> Congested {
    counts.count_refusal();
    crate::budget::note_refused(counts.name);
    Congested { lock: counts.name }
}

/// How often a waiter looks before it joins the line.
#[derive(Clone, Copy)]
struct Spins(u32);

impl Spins {
    const OF_TASKS: Spins = Spins(permits::SPINS_OF_TASKS);
    const OF_THREADS: Spins = Spins(permits::SPINS_OF_THREADS);
}

/// Unwraps the outcome of a wait without a budget, which is never refused.
fn expect_granted<T>(outcome: Result<T, Congested>) -> T {
    match outcome {
        Ok(granted) => granted,
        Err(_) => unreachable!("only those who ask for it are refused"),
    }
}
