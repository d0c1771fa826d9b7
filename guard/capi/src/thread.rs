//! The calling thread: its number, and the request that it runs. Does not contain requests.

use crate::border::sleeps::sleeps;
use leeward_core::units::{Nanos, Time};
use leeward_runtime::budget::{self, RequestBudget};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request that a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Gate that admitted it.
    pub(crate) gate: u32,
    /// Its permit.
    pub(crate) id: u64,
    /// When the thread took it up, by the process's clock.
    pub(crate) since: Time,
}

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
    static AWAKE: Cell<(i64, u64)> = const { Cell::new((-1, 0)) };
}

/// Number of the calling thread, never 0 and never used twice.
#[inline]
pub(crate) fn number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|cell| match cell.get() {
        0 => {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            cell.set(number);
            number
        }
        number => number,
    })
}

/// Whether the calling thread has called the library.
pub(crate) fn is_known() -> bool {
    NUMBER.try_with(|cell| cell.get() != 0).unwrap_or(true)
}

/// Time at which the thread was first seen after its last sleep outside of a request: then it had
/// nothing to do.
pub(crate) fn awake_since(now: u64) -> u64 {
    let sleeps = sleeps();
    AWAKE.with(|cell| {
        if cell.get().0 != sleeps {
            cell.set((sleeps, now));
        }
        cell.get().1
    })
}

/// Whether the thread's sleeps are followed: it has read pipelined requests.
pub(crate) fn follows_sleeps() -> bool {
    AWAKE.with(|cell| cell.get().0 >= 0)
}

/// The thread has run a request for so long, and may have slept in it.
pub(crate) fn has_run(span: Nanos) {
    /// A sleep takes longer, the way to it and back included.
    const SLEEP: Nanos = Nanos::from_micros(10);
    if span >= SLEEP {
        AWAKE.with(|cell| {
            // Of a thread that reads no pipelined requests nobody asks.
            let (before, since) = cell.get();
            if before >= 0 {
                cell.set((sleeps(), since));
            }
        });
    }
}

/// The request that this thread runs.
#[inline]
pub(crate) fn running() -> Option<Running> {
    RUNNING.with(Cell::get)
}

/// Sets the request that this thread runs.
#[inline]
pub(crate) fn set_running(running: Option<Running>) {
    RUNNING.with(|cell| cell.set(running));
}

/// In a child process: the thread that forked runs no request of the parent's gates.
pub(crate) fn forget_running() {
    set_running(None);
    budget::replace_running(RequestBudget::none());
}
