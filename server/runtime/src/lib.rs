//! Cores for microsecond-scale servers. Each core is a pinned thread that takes tasks from a timestamped run queue, looks
//! at its network when there is none, steals from others when there is nothing at all, and sleeps as its idle policy
//! says. The age of the oldest entry of every queue is published: the queueing-delay signal (Breakwater §4).
//!
//! - [`clock`]: the time since the start, in a few nanoseconds.
//! - [`queues`]: run queues and their ages.
//! - [`packets`]: how long messages wait before they are read.
//! - [`parking`]: which cores sleep, without lost wake-ups.
//! - [`tasks`]: futures as tasks in the run queues.
//! - [`timers`]: waiting inside a task.
//! - [`locks`]: mutexes and their kin, which tell how long one waits for them and refuse whoever can't.
//! - [`budget`]: what the running request may still spend on queues.
//! - `context`: which core a thread is.
//! - [`cores`]: the loop of a core, and the threads.
//! - [`allocation`]: cores that come and go.
//! - [`crew`]: threads that take the duties of a threading model instead, and change models.
//!
//! Never here: wire formats, sockets (a [`cores::Network`] brings them), and what is admitted.

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

pub use allocation::{Allocation, CoreUsage};
pub use clock::Clock;
pub use cores::{CoreOptions, Cores, IdlePolicy, Network};
