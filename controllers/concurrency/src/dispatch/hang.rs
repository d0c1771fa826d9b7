//! Requests that hang at their backends: when to look at one, and whether it gives its place up
//! (decision 109). Does not contain clocks or timers.

use super::Dispatcher;
use leeward_core::units::{Nanos, Time};

/// Mean sojourns after which a request may hang.
const HANG_SOJOURNS: u64 = 8;
/// Answers per request that was there when it was sent, and least number of these, by which a
/// request is overtaken. A backend that takes turns overtakes a long request by fewer.
const OVERTAKEN: u64 = 2;
const LEAST_PLACES: u64 = 4;
/// Shortest and longest time between two looks at a request. A backend that is well again after a
/// long hang must not wait for as long as it lasted.
const SHORTEST_LOOK: Nanos = Nanos::from_millis(50);
const LONGEST_LOOK: Nanos = Nanos::from_secs(1);

impl<T> Dispatcher<T> {
    /// Time at a backend after which a request may hang: it is late by then, and takes several
    /// times as long as others.
    pub fn hang_after(&self, backend: usize) -> Nanos {
        self.settings.objective.max(self.mean_sojourn(backend) * HANG_SOJOURNS)
    }

    /// Answers of a backend from which others have overtaken a request that was just sent: twice as
    /// many as requests are there that get answers, of which half may have been there before it.
    pub fn overtaken_at(&self, backend: usize) -> u64 {
        let pool = &self.pools[self.backends[backend].pool];
        pool.answers() + OVERTAKEN * pool.answered_in_flight().max(LEAST_PLACES)
    }

    /// Whether a request gives its place up that has waited for so long: there are as many answers
    /// as [`Dispatcher::overtaken_at`] has said when it was sent, so that it does not wait for what
    /// others wait for. Without this, a hundredth of the requests would take all places and lock
    /// out the others.
    ///
    /// Where such requests have all places, nothing can overtake them. Now and then one of them
    /// gives its place up for a trial.
    pub fn gives_up_place(&mut self, now: Time, backend: usize, waited: Nanos, overtaken_at: u64) -> bool {
        let objective = self.settings.objective;
        let pool = &mut self.pools[self.backends[backend].pool];
        let is_overtaken = pool.answers() >= overtaken_at;
        if is_overtaken {
            pool.note_hang(now, waited);
        }
        is_overtaken || pool.begins_trial(now, objective)
    }

    /// Wait after which a request is looked at again that has waited for so long.
    pub fn next_look(waited: Nanos) -> Nanos {
        waited + Nanos(waited.0 / 4).clamp(SHORTEST_LOOK, LONGEST_LOOK)
    }
}
