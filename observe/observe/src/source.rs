//! Seam between whatever is watched, a server or a gate, and whatever tells of it. Never here: sockets.

use crate::decision::{Decision, DecisionId};
use crate::exemplar::{Exemplar, LOOKED_AT};
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::why::{Context, Second};
use std::time::{SystemTime, UNIX_EPOCH};

/// Anything that can be asked about itself. Asked seldom, from a thread of the asker's.
pub trait Source: Send + Sync {
    /// The state at this moment.
    fn snapshot(&self) -> Snapshot;

    /// The decision of this number, as long as it is kept.
    fn decision(&self, id: DecisionId) -> Option<Decision>;

    /// The newest decisions that are kept, newest first, at most `count`: all refusals, and one in 64 admissions.
    fn decisions(&self, count: usize) -> Vec<Decision>;

    /// Facts that sentences about decisions need besides the decision itself.
    fn context(&self) -> Context;

    /// The second around a decision, as far as the ring still holds it.
    fn second(&self, decision: &Decision) -> Second {
        Second::around(decision, &self.decisions(usize::MAX))
    }

    /// Examples of what the samples count, newest first.
    fn exemplars(&self) -> Vec<Exemplar> {
        let context = self.context();
        self.decisions(LOOKED_AT).iter().map(|decision| Exemplar::of(decision, &context)).collect()
    }

    /// The newest refusals, newest first.
    fn refusals(&self, count: usize, reason: Option<Reason>) -> Vec<Decision> {
        let is_meant = |decision: &Decision| match reason {
            Some(reason) => decision.refused == Some(reason),
            None => decision.refused.is_some(),
        };
        // Admissions stand between them: one in 64 of what may be most of the requests.
        let mut found = self.decisions(count.saturating_mul(64).max(1_024));
        found.retain(is_meant);
        found.truncate(count);
        found
    }
}

/// Now, in nanoseconds since 1970, by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
