//! Turnover of credits between sessions. Each session may keep its last credit beyond the pool, because its responses carry the credit for
//! free. Eight that never stop asking then hold eight credits of a pool of one: nothing is ever open, and sessions without credit wait for ever.
//! So the session that is answered next gives its last credit to somebody else, once those that have none have waited for a turn for long.
//! Never here: windows (`server`), and who waits (`drained`).

use crate::units::{Nanos, Time};

/// So many delay targets without a turn are long. Explicit credits cost messages, and they reach sessions that may have nothing to send:
/// with a turn per target a server at twice its capacity lost 2 % of its goodput, with one per ten nothing
/// (`crates/sim/tests/snapshots`), and keepers of credits cost others 2 % of their requests instead of 19 (`tests/suite/keepers.rs`).
const PATIENCE: f64 = 10.0;

/// Watch over how long nobody of a core has been woken though somebody waits.
#[derive(Debug)]
pub(super) struct Turnover {
    patience: Nanos,
    /// Since when somebody waits without anybody being woken.
    since: Option<Time>,
    /// A credit was given up, which is still counted as nobody's.
    is_owed: bool,
}

impl Turnover {
    /// Of a server with such a delay target.
    pub(super) fn new(target: Nanos) -> Self {
        Turnover { patience: target.scale(PATIENCE), since: None, is_owed: false }
    }

    /// Whether somebody waits, told with every response.
    pub(super) fn note(&mut self, nobody_waits: bool, now: Time) {
        self.since = if nobody_waits { None } else { Some(self.since.unwrap_or(now)) };
    }

    /// Somebody was woken.
    pub(super) fn happened(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// Whether those that wait have waited for long: then the one who asks is to give its credit up, and somebody else gets it. The next
    /// turn is another such time away.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.since.is_some_and(|since| now.since(since) > self.patience);
        if is_due {
            self.since = Some(now);
            self.is_owed = true;
        }
        is_due
    }

    /// Whether somebody may be woken with a credit that another gave up, whatever the pool has. Says so once.
    pub(super) fn is_owed(&mut self) -> bool {
        std::mem::take(&mut self.is_owed)
    }
}
