//! Sessions that have never had a credit: what they send is sent on trust. A crowd of them, each with its one request, would have as much
//! admitted as it likes, and its delay would take the credits of all others. So trust ends with overload, and comes back a while after it.
//! Never here: windows (`server`).

use super::pool::Pool;
use leeward_core::server::{SessionSlot, Signals};
use leeward_core::units::{Nanos, Time};

/// Trust comes back so long after the last overload. A crowd that makes one burst of delay each time has then hardly any of the time, and who
/// comes meanwhile waits for a credit like everybody else.
const DISTRUST_TIME: Nanos = Nanos::from_millis(100);

/// Whether a server trusts strangers.
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

/// Strangers of one core, by slot: a session's own words are recorded. All is O(1), and memory grows with sessions.
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
