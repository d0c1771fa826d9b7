//! The calling thread: its number, and the request that it runs. Does not contain requests.

use crate::border::sleeps::sleeps;
use crate::stamp;
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
    static SIZE: Cell<u32> = const { Cell::new(0) };
    static ROUNDS: Cell<Rounds> = const { Cell::new(Rounds { began: [0; 3], last: 0 }) };
}

/// A thread's rounds over its connections, by the times of its reads.
#[derive(Clone, Copy)]
struct Rounds {
    /// When the latest rounds began, the latest first.
    began: [u64; 3],
    /// The last read.
    last: u64,
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

/// Bytes of a request that the thread reads, of whatever connection; 0: unknown.
pub(crate) fn request_size() -> u32 {
    SIZE.with(Cell::get)
}

/// Records the size of a request that the thread has read.
pub(crate) fn note_request_size(size: u32) {
    SIZE.with(|cell| cell.set(if cell.get() == 0 { size } else { stamp::smaller(cell.get(), size) }));
}

/// Time before which the thread would have read any bytes of a connection that it reads at `now`,
/// and has read before at `read`: it serves each connection in turn.
///
/// A round ends where a connection comes again. What was there when the last but one began would
/// have been read in it, or in the last.
pub(crate) fn not_before(read: u64, now: u64) -> u64 {
    ROUNDS.with(|cell| {
        let Rounds { mut began, last } = cell.get();
        // The wall clock may have been set back.
        if now < began[0] {
            began = [0; 3];
        }
        // Several reads of one connection are one turn.
        if read >= began[0] && read != last && read != 0 {
            began = [now, began[0], began[1]];
        }
        cell.set(Rounds { began, last: now });
        began[2]
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_has_passed_by_is_no_older_than_its_last_rounds() {
        let reads = || {
            let mut times = Vec::new();
            // Three connections, each read twice in its turn; the fourth is seldom readable.
            let (mut read, mut rare) = ([0_u64; 3], 1_000_u64);
            assert_eq!(not_before(0, rare), 0);
            let mut now = rare;
            for round in 1..=20_u64 {
                for of in &mut read {
                    for _ in 0..2 {
                        now += 10;
                        not_before(*of, now);
                        *of = now;
                    }
                }
                if round % 10 == 0 {
                    now += 10;
                    times.push(now - not_before(rare, now));
                    rare = now;
                }
            }
            times
        };
        let times = std::thread::spawn(reads).join().unwrap();
        // Two rounds of some 60, and not the ten since it was read.
        assert!(times.iter().all(|age| (60..=190).contains(age)), "{times:?}");
    }

    #[test]
    fn a_single_connection_makes_no_rounds_and_a_clock_that_is_set_ends_them() {
        let alone = || (1..100).map(|at| not_before(at * 10 - 10, at * 10)).all(|bound| bound == 0);
        assert!(std::thread::spawn(alone).join().unwrap());
        let set_back = || {
            for at in [1_000, 1_001, 1_002, 1_003] {
                not_before(at - 2, at);
            }
            not_before(500, 600)
        };
        assert_eq!(std::thread::spawn(set_back).join().unwrap(), 0);
    }
}
