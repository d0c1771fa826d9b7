//! Rotation of last credits between sessions. Each session may keep its last credit beyond the
//! pool, because its responses carry the credit for free. Eight sessions that always send then hold
//! eight credits of a pool of one. No credit is ever available, and sessions without credit wait
//! for ever.
//!
//! So once the drained sessions have waited for long, the session with the next response gives up
//! its last credit. A drained session gets it. Does not contain windows (`server`) or the drained
//! sessions (`drained`).

use leeward_core::units::{Nanos, Time};

/// Delay targets without a wake-up after which the wait is long. Explicit credits cost messages,
/// and may reach sessions that have nothing to send. With a rotation per target, a server at twice
/// its capacity lost 2 % of its goodput; with one per ten targets it lost nothing
/// (`lab/sim/tests/snapshots`). Sessions that keep credits cost others 2 % of their requests
/// instead of 19 (`tests/suite/greedy.rs`).
const WAIT_TARGETS: f64 = 10.0;

/// Time since a core last woke a session while drained sessions wait.
#[derive(Debug)]
pub(super) struct CreditRotation {
    max_wait: Nanos,
    /// Time since which sessions wait and none was woken.
    since: Option<Time>,
    /// Whether a session gave up a credit that no other session has yet.
    has_spare_credit: bool,
}

impl CreditRotation {
    /// Creates the record for a server with this delay target.
    pub(super) fn new(target: Nanos) -> Self {
        CreditRotation { max_wait: target.scale(WAIT_TARGETS), since: None, has_spare_credit: false }
    }

    /// Records whether drained sessions wait; called with every response.
    pub(super) fn update(&mut self, none_waits: bool, now: Time) {
        self.since = if none_waits { None } else { Some(self.since.unwrap_or(now)) };
        // The waiting sessions found credits elsewhere. A later one must not get this credit beyond
        // the pool.
        self.has_spare_credit &= !none_waits;
    }

    /// Records that a session was woken.
    pub(super) fn record_wake(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// Whether the drained sessions have waited for long. If so, the session of the current
    /// response gives up its credit, and another session gets it. The next rotation is due after
    /// the same time again.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.since.is_some_and(|since| now.since(since) > self.max_wait);
        if is_due {
            self.since = Some(now);
            self.has_spare_credit = true;
        }
        is_due
    }

    /// Takes the credit that a session gave up, if any: another session may be woken with it, even
    /// if the pool has none.
    pub(super) fn take_spare_credit(&mut self) -> bool {
        std::mem::take(&mut self.has_spare_credit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A rotation that was just due.
    fn overdue() -> CreditRotation {
        let mut rotation = CreditRotation::new(Nanos(10));
        rotation.update(false, Time(0));
        rotation.update(false, Time(50));
        assert!(!rotation.is_due(Time(100)), "a hundred is not more than ten times ten");
        assert!(rotation.is_due(Time(101)) && !rotation.is_due(Time(102)), "one turn at a time");
        rotation
    }

    #[test]
    fn a_returned_credit_wakes_one_session() {
        let mut rotation = overdue();
        assert!(rotation.take_spare_credit() && !rotation.take_spare_credit());
    }

    #[test]
    fn no_credit_is_spare_when_no_session_waits() {
        let mut rotation = overdue();
        rotation.update(true, Time(110));
        rotation.update(false, Time(120));
        assert!(!rotation.take_spare_credit());
    }
}
