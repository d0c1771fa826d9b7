//! How an admitted request ends. Never here: what follows for the gate.

use leeward_core::units::Time;
use std::time::Duration;

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with a result.
    Completed,
    /// Answered with a failure of the service's. It has cost what it has cost, and is worth nothing, however fast it came.
    Failed,
    /// Refused inside, by a lock for instance.
    Rejected,
    /// Gone without an answer: cancelled, panicked, its client gone. Also the end of a ticket that is dropped.
    Abandoned,
}

/// The end of a request, as its ticket tells it.
pub(crate) struct RequestEnd {
    pub(crate) class: u8,
    pub(crate) route: u8,
    pub(crate) cpu_time: Option<Duration>,
    pub(crate) queue_time: Duration,
    pub(crate) answered_at: Option<Time>,
    pub(crate) outcome: Outcome,
}
