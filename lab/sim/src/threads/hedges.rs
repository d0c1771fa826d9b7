//! Rules of second calls, and counts of what came of them. When a second call is allowed is decided by [`leeward_core::hedging`], as
//! in a real tier: a thread of a sync setup has rules of its own, response threads share those of their links.

use super::event::Route;
use super::model::{Leaves, SecondCalls, Tails};
use leeward_core::hedging::Hedges;
use leeward_outcome::SecondCallOutcome;

/// Rules of second calls, and counts of what came of them.
pub(super) struct Seconds {
    tails: Tails,
    leaves: usize,
    of_threads: Vec<Hedges>,
    of_links: Vec<Hedges>,
    pub(super) counts: SecondCallOutcome,
    /// The counts when the measured part began.
    before: SecondCallOutcome,
}

impl Seconds {
    pub(super) fn new(leaves: &Leaves) -> Self {
        Seconds {
            tails: leaves.tails,
            leaves: usize::from(leaves.count),
            of_threads: Vec::new(),
            of_links: Vec::new(),
            counts: SecondCallOutcome::default(),
            before: SecondCallOutcome::default(),
        }
    }

    /// The rules that hold for the receiver of a call's news; `None` where no call is made twice.
    pub(super) fn rules(&mut self, to: Route) -> Option<&mut Hedges> {
        let (all, place) = match to {
            _ if self.tails.second_calls == SecondCalls::Never => return None,
            Route::Own(thread) => (&mut self.of_threads, thread as usize),
            Route::Links(link) => (&mut self.of_links, usize::from(link)),
            Route::Helper(_) => return None,
        };
        while all.len() <= place {
            all.push(Hedges::new(self.leaves));
        }
        all.get_mut(place)
    }

    pub(super) fn warmed_up(&mut self) {
        self.before = self.counts;
    }

    /// A request has been answered.
    pub(super) fn answered(&mut self, is_partial: bool) {
        self.counts.answered += 1;
        self.counts.partial += u64::from(is_partial);
    }

    /// Counts of the measured part; `None` where leaves are neither late nor asked twice.
    pub(super) fn outcome(&self) -> Option<SecondCallOutcome> {
        let (now, then) = (&self.counts, &self.before);
        (self.tails != Tails::default()).then(|| SecondCallOutcome {
            calls: now.calls - then.calls,
            hedged: now.hedged - then.hedged,
            retried: now.retried - then.retried,
            answered: now.answered - then.answered,
            partial: now.partial - then.partial,
        })
    }
}
