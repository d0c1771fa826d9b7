//! Turnover of credits between sessions. Each session may keep its last credit beyond the pool, because its responses carry the credit for
//! free. Eight that never stop asking then hold eight credits of a pool of one: nothing is ever open, and sessions without credit wait for ever.
//! So the session that is answered next gives its last credit to somebody else, once those that have none have waited for a turn for long.
//! Never here: windows (`server`), and who waits (`drained`).

use leeward_core::units::{Nanos, Time};

/// So many delay targets without a turn are long. Explicit credits cost messages, and they reach sessions that may have nothing to send:
/// with a turn per target a server at twice its capacity lost 2 % of its goodput, with one per ten nothing
/// (`lab/sim/tests/snapshots`), and keepers of credits cost others 2 % of their requests instead of 19 (`tests/suite/keepers.rs`).
const WAIT_TARGETS: f64 = 10.0;

/// Watch over how long nobody of a core has been woken though somebody waits.
#[derive(Debug)]
pub(super) struct CreditRotation {
    max_wait: Nanos,
    /// Since when somebody waits without anybody being woken.
    since: Option<Time>,
    /// A credit was given up, which is still counted as nobody's.
    has_spare_credit: bool,
}

impl CreditRotation {
    /// Of a server with such a delay target.
    pub(super) fn new(target: Nanos) -> Self {
        CreditRotation { max_wait: target.scale(WAIT_TARGETS), since: None, has_spare_credit: false }
    }

    /// Whether somebody waits, told with every response.
    pub(super) fn update(&mut self, nobody_waits: bool, now: Time) {
        self.since = if nobody_waits { None } else { Some(self.since.unwrap_or(now)) };
        // Who waited has found a credit elsewhere: a later one must not get it beyond the pool.
        self.has_spare_credit &= !nobody_waits;
    }

    /// Somebody was woken.
    pub(super) fn record_wake(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// Whether those that wait have waited for long: then the one who asks is to give its credit up, and somebody else gets it. The next
    /// turn is another such time away.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.since.is_some_and(|since| now.since(since) > self.max_wait);
        if is_due {
            self.since = Some(now);
            self.has_spare_credit = true;
        }
        is_due
    }

    /// Whether somebody may be woken with a credit that another gave up, whatever the pool has. Says so once.
    pub(super) fn take_spare_credit(&mut self) -> bool {
        std::mem::take(&mut self.has_spare_credit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A watch over somebody who has waited for long.
    fn overdue() -> CreditRotation {
        let mut turnover = CreditRotation::new(Nanos(10));
        turnover.update(false, Time(0));
        turnover.update(false, Time(50));
        assert!(!turnover.is_due(Time(100)), "a hundred is not more than ten times ten");
        assert!(turnover.is_due(Time(101)) && !turnover.is_due(Time(102)), "one turn at a time");
        turnover
    }

    #[test]
    fn a_credit_that_was_given_up_wakes_one() {
        let mut turnover = overdue();
        assert!(turnover.take_spare_credit() && !turnover.take_spare_credit());
    }

    #[test]
    fn nobody_is_owed_what_nobody_waits_for() {
        let mut turnover = overdue();
        turnover.update(true, Time(110));
        turnover.update(false, Time(120));
        assert!(!turnover.take_spare_credit());
    }
}
