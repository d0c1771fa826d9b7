//! Counters of requests by their outcome. Does not contain decisions.

use leeward_core::units::Nanos;
use leeward_gate::{ClassCounts, DecisionReason, GateCounts, Outcome, RouteCounts};
use leeward_observe::{Answer, LatencyHistogram, WaitHistogram};

/// Requests since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Outcomes. A request that would have been rejected outside shadow mode counts as rejected and
    /// as admitted: it is sent all the same.
    pub(super) totals: GateCounts,
    pub(super) by_class: ClassCounts,
    pub(super) by_route: RouteCounts,
    /// Requests that were answered before the queue, because they were malformed.
    pub(super) bad_requests: u64,
    /// Times that a request was sent again which a backend may have seen.
    pub(super) retries: u64,
    /// Those of them that may have been load for the backend.
    pub(super) charged_retries: u64,
    pub(super) latencies: LatencyHistogram,
    pub(super) waits: WaitHistogram,
}

impl Counts {
    /// Counts a request that got a place after this wait.
    pub(super) fn admit(&mut self, class: u8, wait: Nanos) {
        self.totals.admitted += 1;
        self.by_class.count(class, None);
        self.waits.record(wait);
    }

    /// Counts a rejection, enforced or not.
    pub(super) fn reject(&mut self, class: u8, reason: DecisionReason) {
        self.totals.rejected[reason as usize] += 1;
        self.by_class.count(class, Some(reason));
    }

    /// Counts the end of a request that had a place.
    pub(super) fn end(&mut self, (class, route): (u8, u8), outcome: Outcome, latency: Nanos, is_in_time: bool) {
        self.by_class.end(class);
        let is_result = outcome == Outcome::Completed;
        match outcome {
            Outcome::Completed | Outcome::Failed => {
                self.totals.completed += 1;
                self.by_route.record(class, usize::from(route), Answer::classify(is_result, is_in_time));
            }
            Outcome::Rejected | Outcome::Abandoned => self.totals.abandoned += 1,
        }
        self.totals.failed += u64::from(outcome == Outcome::Failed);
        if is_result {
            self.totals.in_time += u64::from(is_in_time);
            self.latencies.record(latency);
        }
    }
}
