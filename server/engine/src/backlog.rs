//! Memory of answers that peers have not taken: one bound for all connections of a core.
//!
//! How long an answer will be is not known before its request is executed. So the bound stops requests, not bytes: beyond it
//! connections are not read that have never taken an answer or wait to take one, beyond twice as much no connection is. Those
//! that take nothing, or little, while memory is short end soon, so that the others go on.
//!
//! A protocol that can bound its answers says no to those alone that would be long: then whoever asks for little is answered all the time,
//! and to have taken an answer means to have taken a long one.

use crate::trim::{HighWaterMark, MANY_BYTES};
use leeward_core::units::Nanos;

/// A connection that takes nothing has this long while memory is short: some round trips of a far client.
const STUCK: Nanos = Nanos::from_millis(500);
/// A connection that takes a byte now and then has this long for all that waits for it.
const LAG_TIMEOUT: Nanos = Nanos::from_secs(5);

/// An answer that is no longer is made even when memory is short, bytes.
pub(crate) const SHORT_ANSWER: usize = 16 * 1024;

/// Account of a core, in bytes.
#[derive(Debug)]
pub(crate) struct Backlog {
    limit: usize,
    held: usize,
    /// Watch over what is held, so that memory is given back to the system.
    high_water: HighWaterMark,
}

impl Backlog {
    /// A bound of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Backlog { limit, held: 0, high_water: HighWaterMark::new(MANY_BYTES) }
    }

    /// Changes what a connection's buffer holds from `held` to `now`.
    pub(crate) fn change(&mut self, held: &mut usize, now: usize) {
        self.held = self.held - *held + now;
        *held = now;
        self.high_water.note(self.held);
    }

    /// Whether memory is short.
    pub(crate) fn is_short(&self) -> bool {
        self.held > self.limit
    }

    /// Whether so much is left that a connection whose socket is full may have short answers made beyond its first few: those that never read
    /// are not to make memory short for the others.
    pub(crate) fn is_plentiful(&self) -> bool {
        self.held <= self.limit / 2
    }

    /// Whether even those wait that take their answers.
    fn is_full(&self) -> bool {
        self.held > self.limit.saturating_mul(2)
    }

    /// How long a connection may take nothing, and how long it may leave something, if the first is `stuck` while there is memory.
    pub(crate) fn timeouts(&self, stuck: Nanos) -> (Nanos, Nanos) {
        match (self.is_short(), self.is_full()) {
            (false, _) => (stuck, Nanos::MAX),
            (true, false) => (stuck.min(STUCK), LAG_TIMEOUT),
            (true, true) => (stuck.min(STUCK), STUCK),
        }
    }

    /// Whether another request may be executed of a connection that has proven to take its answers, or has not.
    pub(crate) fn admits(&self, takes: bool) -> bool {
        !self.is_short() || (takes && !self.is_full())
    }

    /// Whether much was held and hardly anything is now. Says so once.
    pub(crate) fn has_receded(&mut self) -> bool {
        self.high_water.has_receded(self.held)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn those_that_take_their_answers_have_as_much_again() {
        let mut backlog = Backlog::new(100);
        let mut held = [0; 3];
        backlog.change(&mut held[0], 100);
        assert!(!backlog.is_short() && backlog.admits(false));
        backlog.change(&mut held[1], 1);
        assert!(backlog.is_short() && !backlog.admits(false) && backlog.admits(true));
        backlog.change(&mut held[2], 100);
        assert!(!backlog.admits(true));
        assert_eq!(backlog.timeouts(Nanos::from_secs(10)), (STUCK, STUCK));
        backlog.change(&mut held[0], 0);
        assert!(backlog.is_short() && backlog.admits(true));
        backlog.change(&mut held[2], 0);
        assert!(!backlog.is_short());
        assert_eq!((backlog.held, held), (1, [0, 1, 0]));
    }

    #[test]
    fn memory_is_plentiful_up_to_half_of_the_bound() {
        let mut backlog = Backlog::new(100);
        let mut held = 0;
        backlog.change(&mut held, 50);
        assert!(backlog.is_plentiful());
        backlog.change(&mut held, 51);
        assert!(!backlog.is_plentiful() && backlog.admits(false));
    }

    #[test]
    fn the_end_of_much_is_said_once() {
        let mut backlog = Backlog::new(1);
        let mut held = 0;
        backlog.change(&mut held, MANY_BYTES);
        assert!(!backlog.has_receded());
        backlog.change(&mut held, 0);
        assert!(backlog.has_receded());
        assert!(!backlog.has_receded());
    }
}
