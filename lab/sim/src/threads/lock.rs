//! A lock with hold times known in advance, as arithmetic: `acquire` returns the time of waiting
//! and holding. Waiters spin.
//!
//! Not modelled: a holder that loses its CPU keeps the lock only for the computed time.

use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// A lock that is granted in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// Time at which all present holders and waiters have released it.
    free: Time,
    /// Grant time of each waiter.
    grant_times: VecDeque<Time>,
    /// Number of acquisitions that had to wait.
    pub(super) contended: u64,
}

impl Lock {
    /// Acquires the lock at `now` for `hold`, among `pollers` threads that take it in turns.
    /// Returns the CPU time from `now` to the release: waiting, one `line` per competing thread,
    /// and holding. Pollers cost only the rest of their poll.
    pub(super) fn acquire(&mut self, now: Time, hold: Nanos, line: Nanos, pollers: u32, poll_rest: Nanos) -> Nanos {
        while self.grant_times.front().is_some_and(|start| *start <= now) {
            self.grant_times.pop_front();
        }
        let busy = self.free.since(now);
        let others = self.grant_times.len() as u64 + u64::from(busy > Nanos::ZERO) + u64::from(pollers);
        if others == 0 {
            self.free = now + hold;
            return hold;
        }
        if hold == Nanos::ZERO && line == Nanos::ZERO {
            return Nanos::ZERO;
        }
        self.contended += 1;
        let wait = busy.max(poll_rest) + line * others;
        self.grant_times.push_back(now + wait);
        self.free = now + wait + hold;
        wait + hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_queue_and_pay_for_cache_line_transfers() {
        let mut lock = Lock::default();
        let (hold, line) = (Nanos(100), Nanos(10));
        let mut take = |now| lock.acquire(Time(now), hold, line, 0, Nanos::ZERO).0;
        assert_eq!(take(0), 100);
        assert_eq!(take(50), 50 + 10 + 100, "one holds it until 100");
        assert_eq!(take(60), 150 + 2 * 10 + 100, "one holds it and one waits, until 210");
        assert_eq!(take(1_000), 100);
        assert_eq!(lock.contended, 2);
    }

    #[test]
    fn pollers_add_a_poll_and_their_cache_line_transfers() {
        let mut lock = Lock::default();
        assert_eq!(lock.acquire(Time(0), Nanos(100), Nanos(10), 3, Nanos(40)).0, 40 + 30 + 100);
    }
}
