//! Sessions that have never had a credit. Their first requests are admitted without one. A crowd of
//! such sessions, each with one request, could get all of them admitted, and their delay would take
//! the credits of the other sessions. So an overload makes these requests take a credit, until a
//! while after it. Does not contain windows (`server`).

use super::pool::Pool;
use leeward_core::server::{SessionSlot, Signals};
use leeward_core::units::{Nanos, Time};

/// Time after the last overload in which requests of untried sessions need a credit. A crowd that
/// makes a burst of delay each time then gets little of the time. A new session meanwhile waits for
/// a credit like the others.
const DISTRUST_TIME: Nanos = Nanos::from_millis(100);

/// Whether requests of untried sessions need a credit.
#[derive(Debug)]
pub(super) struct UntriedPolicy {
    /// Queueing delay from which the server is overloaded.
    target: Nanos,
    distrust_until: Time,
}

impl UntriedPolicy {
    pub(super) fn new(target: Nanos) -> Self {
        UntriedPolicy { target, distrust_until: Time::ZERO }
    }

    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals) {
        if signals.delay() >= self.target {
            self.distrust_until = signals.now + DISTRUST_TIME;
        }
        let distrusts = signals.now < self.distrust_until;
        if distrusts != pool.charges_untried() {
            pool.set_charges_untried(distrusts);
        }
    }
}

/// Untried sessions of one core, by slot. Recordings contain a session's own state words, so this
/// flag is kept here. All operations are O(1), and memory grows with sessions.
#[derive(Debug, Default)]
pub(super) struct UntriedSessions(Vec<bool>);

impl UntriedSessions {
    pub(super) fn insert(&mut self, slot: SessionSlot) {
        let at = slot.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, false);
        }
        self.0[at] = true;
    }

    pub(super) fn remove(&mut self, slot: SessionSlot) {
        if let Some(is_in) = self.0.get_mut(slot.0 as usize) {
            *is_in = false;
        }
    }

    pub(super) fn contains(&self, slot: SessionSlot) -> bool {
        self.0.get(slot.0 as usize).is_some_and(|is_in| *is_in)
    }
}
