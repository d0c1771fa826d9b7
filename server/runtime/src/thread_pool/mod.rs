//! A crew: threads that take the duties of a threading model (µTune, OSDI'18), and change models while requests are under way. All threads are
//! there from the start; those without a duty are parked.
//!
//! - [`Control`]: what the threads share. [`Control::change`] switches. `plan`: the setup that holds, in one word.
//! - `claims`: which thread has which slot. `sleepers`, `watch`: who sleeps, who waits at sockets, without lost wake-ups.
//! - [`Duties`]: what is done for each role, which the crew's owner brings. `worker`: the loop of a thread.
//! - [`Lease`]: something that one thread at a time has, with letters for it.
//! - `model`: all of it in the model checker, with broken variants that it must find.
//!
//! Never here: sockets and wire formats, which setup fits the load, what a request does.

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

/// Threads that a crew needs for setups of up to so many: two more, so that one that receives and one that waits for leaves are found at once
/// even while all others are held by sync requests.
pub fn pool_size(most: u32) -> usize {
    most as usize + 2
}

/// A running crew.
pub struct ThreadPool {
    control: Arc<PoolControl>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Starts the threads. `cpus`: where they may run, all of them on any of these in turn; empty: wherever the system puts them.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start<D: RoleHandler>(
        control: &Arc<PoolControl>,
        duties: &Arc<D>,
        clock: &Clock,
        cpus: &[usize],
    ) -> io::Result<ThreadPool> {
        let mut crew = ThreadPool { control: Arc::clone(control), threads: Vec::with_capacity(control.threads()) };
        for thread in 0..control.threads() {
            let worker = worker::Worker {
                thread,
                control: Arc::clone(control),
                handler: Arc::clone(duties),
                clock: clock.clone(),
            };
            let cpu = (!cpus.is_empty()).then(|| cpus[thread % cpus.len()]);
            let run = move || {
                if let Some(id) = cpu {
                    // Not being allowed to pin costs latency, not correctness.
                    core_affinity::set_for_current(core_affinity::CoreId { id });
                }
                let _will = StopOnPanic(Arc::clone(&worker.control));
                worker.work();
            };
            match std::thread::Builder::new().name(format!("leeward-crew-{thread}")).spawn(run) {
                Ok(handle) => crew.threads.push(handle),
                Err(error) => {
                    crew.control.stop();
                    let _ = crew.join();
                    return Err(error);
                }
            }
        }
        Ok(crew)
    }

    /// State that its threads share.
    pub fn control(&self) -> &Arc<PoolControl> {
        &self.control
    }

    /// Waits for the threads to end, which [`Control::stop`] asks for.
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

/// Stops the others if a thread ends by a panic: a crew that lacks one might never do its duty.
struct StopOnPanic(Arc<PoolControl>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
