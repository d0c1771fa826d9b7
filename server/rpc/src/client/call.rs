//! A call as its caller sees it: its options, and the result. Never here: waiting for that (`response_future`).

use leeward_core::units::{Nanos, Priority};

use super::call_error::CallError;

/// Options of a call besides its argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    pub(super) priority: Option<Priority>,
    pub(super) budget: Option<Nanos>,
    pub(super) timeout: Option<Nanos>,
    pub(super) over_tcp: bool,
}

impl CallOptions {
    /// The client's time-out, no budget, a priority by chance.
    pub fn new() -> Self {
        CallOptions::default()
    }

    /// How important it is. Without it each call gets one of the 128 by chance, as DAGOR does.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Queueing delay that the call may cause in all, its wait at this client included: the server learns what is left.
    #[must_use]
    pub fn budget(mut self, budget: Nanos) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Goes over TCP, where the client has a replica or a fallback of that kind: for a result that does not fit a datagram.
    #[must_use]
    pub fn over_tcp(mut self) -> Self {
        self.over_tcp = true;
        self
    }

    /// How long the caller waits in all, instead of the client's own time-out.
    #[must_use]
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// A result, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The result.
    pub payload: Vec<u8>,
    /// From when the call was made to when its answer was here: all that the caller waits for, but for its own wake-up.
    pub latency: Nanos,
    /// The part of it from when the call left to now: the network and the server.
    pub round_trip: Nanos,
    /// The server's part of that.
    pub sojourn: Nanos,
    /// Which replica answered, counted in the order in which they were given to the builder.
    pub replica: usize,
    /// How often the call had been rejected elsewhere before.
    pub retries: u32,
}

/// How a call ends.
pub(super) type Outcome = Result<Response, CallError>;
