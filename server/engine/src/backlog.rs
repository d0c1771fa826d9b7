//! Bounds the memory of responses that peers have not taken, for all connections of a core.
//!
//! The length of a response is unknown until its request has run. So the bound stops requests, not
//! bytes. Above the limit, a core reads only connections that have proven to take their responses.
//! Above twice the limit, it reads no connection. While memory is short, connections that take
//! little or nothing end soon, so that the others go on.
//!
//! A protocol that can bound its responses rejects only requests with long responses. Short
//! requests are then always answered, and only a long response that was taken counts as proof.

use crate::trim::{HighWaterMark, MANY_BYTES};
use leeward_core::units::Nanos;

/// Time for which a connection may take nothing while memory is short: some round trips of a far
/// client.
const STUCK: Nanos = Nanos::from_millis(500);
/// Time in which a connection that takes only some bytes must take everything that is pending.
const LAG_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Longest response, in bytes, that is made even while memory is short.
pub(crate) const SHORT_ANSWER: usize = 16 * 1024;

/// Account of the bytes that a core's connections hold.
#[derive(Debug)]
pub(crate) struct Backlog {
    limit: usize,
    held: usize,
    /// High-water mark of `held`, so that freed memory is given back to the system.
    high_water: HighWaterMark,
}

impl Backlog {
    /// Makes an account with a limit of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Backlog { limit, held: 0, high_water: HighWaterMark::new(MANY_BYTES) }
    }

    /// Changes the bytes that a connection's buffer holds from `held` to `now`.
    pub(crate) fn change(&mut self, held: &mut usize, now: usize) {
        self.held = self.held - *held + now;
        *held = now;
        self.high_water.note(self.held);
    }

    /// Returns whether memory is short.
    pub(crate) fn is_short(&self) -> bool {
        self.held > self.limit
    }

    /// Returns whether at most half of the limit is used. A connection with a full socket may then
    /// have more short responses than its first few. Clients that never read must not make memory
    /// short for the others.
    pub(crate) fn is_plentiful(&self) -> bool {
        self.held <= self.limit / 2
    }

    /// Returns whether even connections that take their responses must wait.
    fn is_full(&self) -> bool {
        self.held > self.limit.saturating_mul(2)
    }

    /// Returns the longest time without progress, and the longest time with unsent bytes. `stuck`
    /// is the first of these while memory is not short.
    pub(crate) fn timeouts(&self, stuck: Nanos) -> (Nanos, Nanos) {
        match (self.is_short(), self.is_full()) {
            (false, _) => (stuck, Nanos::MAX),
            (true, false) => (stuck.min(STUCK), LAG_TIMEOUT),
            (true, true) => (stuck.min(STUCK), STUCK),
        }
    }

    /// Returns whether another request may run. `takes`: the connection has proven to take its
    /// responses.
    pub(crate) fn admits(&self, takes: bool) -> bool {
        !self.is_short() || (takes && !self.is_full())
    }

    /// Returns, once, whether much was held and hardly anything is now.
    pub(crate) fn has_receded(&mut self) -> bool {
        self.high_water.has_receded(self.held)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reading_connections_have_twice_the_backlog_limit() {
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
    fn a_receded_peak_is_reported_once() {
        let mut backlog = Backlog::new(1);
        let mut held = 0;
        backlog.change(&mut held, MANY_BYTES);
        assert!(!backlog.has_receded());
        backlog.change(&mut held, 0);
        assert!(backlog.has_receded());
        assert!(!backlog.has_receded());
    }
}
