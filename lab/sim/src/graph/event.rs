//! Events of a graph's run. Never here: what follows from them.

use super::jobs::JobId;
use leeward_core::server::{Feedback, Outcome};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A request reaches the server that it was sent to.
    Arrive(JobId),
    /// A core of this server has finished what it did for a request.
    Core(u32, JobId, Work),
    /// A response or drop reaches the caller.
    Reply(JobId, Outcome, Feedback),
    /// An explicit credit message reaches the caller's end of a link.
    Credit(u32, Feedback),
    /// A message with the demand of a link's caller reaches the server.
    Demand(u32, u32),
    /// Timer of a link's client.
    Timer(u32),
    /// The controllers of a service's servers are due.
    Tick(u32),
    /// The measured part begins.
    WarmedUp,
    /// A window of the time series ends.
    Window,
}

/// Work of a core for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The request was received and is dropped.
    Reject,
    /// The request was received, and waits for credits behind.
    Park,
    /// The request was computed, up to its first calls or its answer.
    Begin,
    /// Calls of a stage were answered.
    Resume,
}
