//! A call as its caller sees it: its options and its result.
//!
//! Does not contain the wait for the result (`response_future`).

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
    /// Creates the defaults: the client's timeout, no budget, a random priority.
    pub fn new() -> Self {
        CallOptions::default()
    }

    /// Sets the priority. By default, each call gets a random one of 128, as in DAGOR.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the total queueing delay that the call may cause.
    ///
    /// It includes the wait at this client; the server learns the rest.
    #[must_use]
    pub fn budget(mut self, budget: Nanos) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sends the call over TCP, if the client has a TCP replica or a fallback: for a result that
    /// does not fit a datagram.
    #[must_use]
    pub fn over_tcp(mut self) -> Self {
        self.over_tcp = true;
        self
    }

    /// Sets the caller's total wait, instead of the client's timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Result of a call, with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The result.
    pub payload: Vec<u8>,
    /// Time from the call to the arrival of its response: the caller's wait, except for its
    /// wake-up.
    pub latency: Nanos,
    /// Time from sending the call to the arrival of its response: network and server.
    pub round_trip: Nanos,
    /// The server's part of the round trip.
    pub sojourn: Nanos,
    /// Index of the replica that responded, in the order of the builder.
    pub replica: usize,
    /// Number of rejections by other replicas before.
    pub retries: u32,
}

/// Outcome of a call.
pub(super) type Outcome = Result<Response, CallError>;
