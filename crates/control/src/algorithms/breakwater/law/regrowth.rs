//! Growth where nothing waits, under auto. The published step (Breakwater §3.2.1) is a thousandth of the sessions in credits per round
//! trip: right beside a queue, and slow where there is none. Ten clients get a credit in a hundred round trips; a pool that shrank to
//! one takes a thousand of them for a thousand clients.
//!
//! So while no request waits for a core though all credits are out, the pool grows by a part of itself. The first queue ends this: from there on
//! it is the published step.

use crate::algorithms::breakwater::pool::Pool;
use crate::units::Nanos;

/// Round trips without a queue after which the pool grows faster: what was granted has arrived by then, and would be seen.
const QUIET: u32 = 4;
/// So many parts of the pool make a step: two round trips pass before a queue is seen, which is an eighth too much.
const PARTS: i64 = 16;
/// Part of the target that is no queue.
const NO_QUEUE: u64 = 8;

/// How long no queue has been seen.
#[derive(Debug, Default)]
pub(super) struct Regrowth {
    quiet: u32,
}

impl Regrowth {
    /// Credits to add in this round trip.
    pub(super) fn step(&mut self, pool: &Pool, delay: Nanos, target: Nanos) -> i64 {
        if delay > target / NO_QUEUE {
            self.quiet = 0;
            return 0;
        }
        self.quiet = self.quiet.saturating_add(1);
        let total = pool.total();
        if self.quiet <= QUIET || pool.issued() < total { 0 } else { (total / PARTS).max(1) }
    }

    /// Something else is short.
    pub(super) fn end(&mut self) {
        self.quiet = 0;
    }
}
