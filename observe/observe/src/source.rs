//! Seam between whatever is watched, a server or a gate, and whatever tells of it. Never here: sockets.

use crate::decision::{Decision, DecisionId};
use crate::exemplar::{Exemplar, SCAN_MAX};
use crate::explain::{DecisionContext, NearbyCounts};
use crate::reason::DecisionReason;
use crate::snapshot::Snapshot;
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
    fn context(&self) -> DecisionContext;

    /// The second around a decision, as far as the ring still holds it.
    fn nearby_counts(&self, decision: &Decision) -> NearbyCounts {
        NearbyCounts::new(decision, &self.decisions(usize::MAX))
    }

    /// Examples of what the samples count, newest first.
    fn exemplars(&self) -> Vec<Exemplar> {
        let context = self.context();
        self.decisions(SCAN_MAX).iter().map(|decision| Exemplar::new(decision, &context)).collect()
    }

    /// The newest refusals, newest first.
    fn rejections(&self, count: usize, reason: Option<DecisionReason>) -> Vec<Decision> {
        let is_meant = |decision: &Decision| match reason {
            Some(reason) => decision.reject_reason == Some(reason),
            None => decision.reject_reason.is_some(),
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
