//! Counters of requests by their outcome. Does not contain decisions.

use leeward_core::units::Nanos;
use leeward_gate::{Class, DecisionReason, Outcome};
use leeward_observe::{LatencyHistogram, ROUTE_SLOTS, WaitHistogram};

const CLASSES: usize = Class::COUNT as usize;
const REASONS: usize = DecisionReason::ALL.len();

/// Requests since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) arrived: u64,
    pub(super) admitted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) in_time: u64,
    pub(super) abandoned: u64,
    /// Requests that would have been rejected outside shadow mode.
    pub(super) shadowed: u64,
    /// Headers of trusted peers that could not be parsed.
    pub(super) malformed: u64,
    /// Requests that were answered before the queue, because they were malformed.
    pub(super) bad_requests: u64,
    /// Requests that were sent to a second backend.
    pub(super) retries: u64,
    pub(super) admitted_by_class: [u64; CLASSES],
    pub(super) ended_by_class: [u64; CLASSES],
    pub(super) rejected: [[u64; REASONS]; CLASSES],
    pub(super) answers: [[AnswerCounts; ROUTE_SLOTS]; CLASSES],
    pub(super) latencies: LatencyHistogram,
    pub(super) waits: WaitHistogram,
}

/// Answers of one class and route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerCounts {
    pub(super) in_time: u64,
    pub(super) late: u64,
    pub(super) failed: u64,
}

fn index(class: u8) -> usize {
    usize::from(class).min(CLASSES - 1)
}

impl Counts {
    /// Counts a request that got a place after this wait.
    pub(super) fn admit(&mut self, class: u8, wait: Nanos) {
        self.admitted += 1;
        self.admitted_by_class[index(class)] += 1;
        self.waits.record(wait);
    }

    /// Counts a rejection.
    pub(super) fn reject(&mut self, class: u8, reason: DecisionReason) {
        self.rejected[index(class)][reason as usize] += 1;
    }

    /// Counts the end of a request that had a place.
    pub(super) fn end(&mut self, (class, route): (u8, u8), outcome: Outcome, latency: Nanos, is_in_time: bool) {
        self.ended_by_class[index(class)] += 1;
        let answers = &mut self.answers[index(class)][usize::from(route).min(ROUTE_SLOTS - 1)];
        match outcome {
            Outcome::Completed => {
                self.completed += 1;
                self.in_time += u64::from(is_in_time);
                self.latencies.record(latency);
                *if is_in_time { &mut answers.in_time } else { &mut answers.late } += 1;
            }
            Outcome::Failed => {
                self.completed += 1;
                self.failed += 1;
                answers.failed += 1;
            }
            Outcome::Rejected | Outcome::Abandoned => self.abandoned += 1,
        }
    }

    /// Requests at the backends, by class.
    pub(super) fn in_flight_by_class(&self) -> Vec<u64> {
        let pairs = self.admitted_by_class.iter().zip(&self.ended_by_class);
        pairs.map(|(admitted, ended)| admitted.saturating_sub(*ended)).collect()
    }
}
