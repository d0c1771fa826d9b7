//! Interface between an observed server or gate and its observers. Does not contain sockets.

use crate::decision::{Decision, DecisionId};
use crate::exemplar::{Exemplar, SCAN_MAX};
use crate::explain::{DecisionContext, NearbyCounts};
use crate::reason::DecisionReason;
use crate::snapshot::Snapshot;
use std::time::{SystemTime, UNIX_EPOCH};

/// Server or gate that can be observed. Observers call it seldom, from their own threads.
pub trait Source: Send + Sync {
    /// State at this moment.
    fn snapshot(&self) -> Snapshot;

    /// Returns the decision with this number, as long as the ring keeps it.
    fn decision(&self, id: DecisionId) -> Option<Decision>;

    /// Newest decisions in the ring, newest first, at most `count`: all rejections, and one in 64
    /// admissions.
    fn decisions(&self, count: usize) -> Vec<Decision>;

    /// Facts that explanations need besides the decision.
    fn context(&self) -> DecisionContext;

    /// Counts the decisions in the second around `decision`, as far as the ring still holds them.
    fn nearby_counts(&self, decision: &Decision) -> NearbyCounts {
        NearbyCounts::new(decision, &self.decisions(usize::MAX))
    }

    /// Exemplars for the samples, newest first.
    fn exemplars(&self) -> Vec<Exemplar> {
        let context = self.context();
        self.decisions(SCAN_MAX).iter().map(|decision| Exemplar::new(decision, &context)).collect()
    }

    /// Newest rejections, newest first, optionally of one reason.
    fn rejections(&self, count: usize, reason: Option<DecisionReason>) -> Vec<Decision> {
        let is_meant = |decision: &Decision| match reason {
            Some(reason) => decision.reject_reason == Some(reason),
            None => decision.reject_reason.is_some(),
        };
        // The ring also holds one in 64 admissions, which may outnumber the rejections.
        let mut found = self.decisions(count.saturating_mul(64).max(1_024));
        found.retain(is_meant);
        found.truncate(count);
        found
    }
}

/// Current time in nanoseconds since 1970, by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
