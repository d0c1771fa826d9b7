//! A thread pool whose threads take the roles of a threading model (µTune, OSDI'18), and change
//! models while requests are in flight. All threads exist from the start; those without a role are
//! parked.
//!
//! - [`PoolControl`]: the state that the threads share. [`PoolControl::switch_setup`] switches.
//!   `plan`: the current setup, in one word.
//! - `assignments`: the slots' threads. `sleepers`, `leader`: sleeping threads, and threads at
//!   sockets, without lost wake-ups.
//! - [`RoleHandler`]: the work of each role, which the pool's owner implements. `worker`: the loop
//!   of a thread.
//! - [`ExclusiveClaim`]: a value that one thread at a time has, with messages for it.
//! - `model`: all of it in the model checker, with broken variants that it must find.
//!
//! Does not contain sockets and wire formats, the choice of setup for a load, or a request's work.

mod assignments;
mod control;
mod exclusive_claim;
mod leader;
#[cfg(all(test, loom))]
mod model;
mod plan;
mod sleepers;
mod worker;

pub use assignments::Assignment;
pub use control::{PoolControl, ThreadCounts};
pub use exclusive_claim::{ExclusiveClaim, MessageHandler};
pub use plan::Epoch;
pub use worker::RoleHandler;

use crate::clock::Clock;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads of a pool for setups of up to `most` threads: two more. So one thread that receives and
/// one that waits for leaves are available at once, even while sync requests hold all others.
pub fn pool_size(most: u32) -> usize {
    most as usize + 2
}

/// A running thread pool.
pub struct ThreadPool {
    control: Arc<PoolControl>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Starts the threads. `cpus`: the CPUs to pin them to, in turn; empty: the system places them.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<D: RoleHandler>(
        control: &Arc<PoolControl>,
        role_handler: &Arc<D>,
        clock: &Clock,
        cpus: &[usize],
    ) -> io::Result<ThreadPool> {
        let mut pool = ThreadPool { control: Arc::clone(control), threads: Vec::with_capacity(control.threads()) };
        for thread in 0..control.threads() {
            let worker = worker::Worker {
                thread,
                control: Arc::clone(control),
                handler: Arc::clone(role_handler),
                clock: clock.clone(),
            };
            let cpu = (!cpus.is_empty()).then(|| cpus[thread % cpus.len()]);
            let run = move || {
                if let Some(id) = cpu {
                    // Failing to pin costs latency, not correctness.
                    core_affinity::set_for_current(core_affinity::CoreId { id });
                }
                let _will = StopOnPanic(Arc::clone(&worker.control));
                worker.work();
            };
            match std::thread::Builder::new().name(format!("leeward-pool-{thread}")).spawn(run) {
                Ok(handle) => pool.threads.push(handle),
                Err(error) => {
                    pool.control.stop();
                    let _ = pool.join();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    /// State that the threads share.
    pub fn control(&self) -> &Arc<PoolControl> {
        &self.control
    }

    /// Waits for the threads to end, after [`PoolControl::stop`].
    ///
    /// # Errors
    /// A thread has panicked.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread.join().map_err(|_| io::Error::other("a thread of the crew has panicked"));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Stops the other threads if one panics: the pool might otherwise lack a role for ever.
struct StopOnPanic(Arc<PoolControl>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
