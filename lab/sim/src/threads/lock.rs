//! A lock that is held for spans known in advance, as arithmetic: whoever takes it is told how long taking and holding will last. A
//! waiter spins. Not modelled: a holder that loses its CPU, which keeps the lock for the span that was told.

use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// A lock whose holders follow each other in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// When those who have asked for it have done.
    free: Time,
    /// When each that still waits will get it.
    grant_times: VecDeque<Time>,
    /// Takes so far, and those of them that had to wait.
    pub(super) contended: u64,
}

impl Lock {
    /// Takes the lock at `now` for `hold`, beside `pollers` that take it in turns. The CPU time from `now` to its release: waiting, one
    /// `line` per thread that wants it as well, and holding. Of pollers only the end of a look is waited for.
    pub(super) fn acquire(&mut self, now: Time, hold: Nanos, line: Nanos, pollers: u32, look_ends: Nanos) -> Nanos {
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
        let got = busy.max(look_ends) + line * others;
        self.grant_times.push_back(now + got);
        self.free = now + got + hold;
        got + hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_follow_each_other_and_pay_for_the_line() {
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
    fn pollers_delay_by_a_look_and_their_lines() {
        let mut lock = Lock::default();
        assert_eq!(lock.acquire(Time(0), Nanos(100), Nanos(10), 3, Nanos(40)).0, 40 + 30 + 100);
    }
}
