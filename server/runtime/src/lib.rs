//! Cores for microsecond-scale servers. Each core is a pinned thread. It takes tasks from a
//! timestamped run queue and polls its network when the queue is empty. Without work it steals from
//! other cores, and then sleeps by its idle policy. The age of each queue's oldest entry is
//! published: the queueing-delay signal (Breakwater §4).
//!
//! For servers, and for handlers that use its locks and timers. Entry points: [`locks`],
//! [`timers`] and [`Cores`].
//!
//! - [`clock`]: the time since the start, in a few nanoseconds. [`wall`]: the time of the kernel's
//!   stamps, in as few.
//! - [`queues`]: run queues and their ages.
//! - [`packets`]: waits of messages before they are read.
//! - [`parking`]: sleeping cores, without lost wake-ups.
//! - [`tasks`]: futures as tasks in the run queues.
//! - [`timers`]: waiting inside a task.
//! - [`locks`]: mutexes and similar, which measure their waits and reject requests whose budget
//!   would not last.
//! - [`budget`]: remaining queueing budget of the running request.
//! - `context`: the core that a thread runs.
//! - [`cores`]: the loop of a core, and the threads.
//! - [`allocation`]: cores that an allocator grants and revokes.
//! - [`thread_pool`]: threads that take the roles of a threading model instead, and change models.
//!
//! # Example
//! ```
//! use leeward_core::budget::Budget;
//! use leeward_core::units::Nanos;
//! use leeward_runtime::{budget, locks::Mutex};
//!
//! let cache = Mutex::new("cache", 0);
//! // A request that may wait 100 µs in queues. A free lock costs nothing of that.
//! let request = || cache.lock_blocking_unless_congested().map(|mut entries| *entries += 1);
//! let (result, _) = budget::with(Budget::new(Nanos::from_micros(100)), request);
//! assert!(result.is_ok());
//! assert_eq!(*cache.lock_blocking(), 1);
//! ```
//!
//! Does not contain wire formats, sockets (a [`cores::Network`] brings these), or the admission
//! decision.

#![deny(unsafe_code)]

pub mod allocation;
pub mod budget;
pub mod clock;
mod context;
pub mod cores;
pub mod locks;
pub mod packets;
pub mod parking;
pub mod queues;
pub(crate) mod sync;
pub mod tasks;
pub mod thread_pool;
pub mod timers;
pub mod wall;

pub use allocation::{Allocation, CoreUsage};
pub use clock::Clock;
pub use cores::{CoreOptions, Cores, IdlePolicy, Network};
