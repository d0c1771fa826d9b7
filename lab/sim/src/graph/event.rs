//! Events of a graph's run. Does not contain their effects.

use super::jobs::JobId;
use leeward_core::server::{Feedback, Outcome};

/// An event of the run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A request reaches the server that it was sent to.
    Arrive(JobId),
    /// A core of this server has finished its work for a request.
    Core(u32, JobId, Work),
    /// A response or rejection reaches the caller.
    Reply(JobId, Outcome, Feedback),
    /// An explicit credit reaches the caller's end of a link.
    Credit(u32, Feedback),
    /// A message with the demand of a link's caller reaches the server.
    Demand(u32, u32),
    /// Timer of a link's client.
    Timer(u32),
    /// The controllers of a service's servers run.
    Tick(u32),
    /// The measurement begins.
    WarmedUp,
    /// An observed window ends.
    Observe,
    /// A window of the time series ends.
    Window,
}

/// Work of a core for a request, named by what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The request was received and is rejected.
    Reject,
    /// The request was received, and waits for credits of downstream servers.
    Park,
    /// The request has computed up to its first calls or its response.
    Begin,
    /// The replies of a stage were processed.
    Resume,
}
