//! Outcomes of admitted requests. Does not contain their effect on the gate.

use leeward_core::units::{Nanos, Time};
use leeward_observe::DecisionReason;

/// Outcome of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with a result.
    Completed,
    /// Answered with a failure of the service, or ended by one, such as a panic. The request cost
    /// its work and counts as no goodput, however fast it was.
    Failed,
    /// Rejected inside the service, by a lock for instance.
    Rejected,
    /// Ended without an answer: cancelled, client gone. A dropped permit ends so, too, but as
    /// [`Outcome::Failed`] after a panic in [`crate::Permit::run`].
    Abandoned,
}

impl Outcome {
    /// Whether all of the work was done. A request that a lock has rejected, or whose client has
    /// gone, ends sooner than others.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Outcome::Completed | Outcome::Failed)
    }
}

/// The end of a request, as its permit reports it.
pub(crate) struct RequestEnd {
    pub(crate) class: u8,
    pub(crate) route: u8,
    pub(crate) cpu_time: Option<Nanos>,
    pub(crate) queue_time: Nanos,
    pub(crate) answered_at: Option<Time>,
    pub(crate) outcome: Outcome,
    /// Why it was rejected, if it was.
    pub(crate) reason: DecisionReason,
}
