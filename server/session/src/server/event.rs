//! Events that a server's connection reports to its owner, and the owner's answers.

use leeward_core::server;
use leeward_core::units::{CreditId, Nanos, Time};
use leeward_wire::{Budget, ErrorCode, FailureCode, Method, RejectCode, RequestId, Timestamp};

/// Event from a client.
#[derive(Debug)]
pub enum Event<'a> {
    /// The buffer holds no whole frame: more bytes are needed.
    Incomplete,
    /// The controller admitted a call. [`super::ServerConnection::answer`] answers it, exactly
    /// once.
    Call(Call<'a>),
    /// A call was rejected, and the rejection is in the output.
    Rejected(RejectCode),
    /// The client queries the server's statistics. The owner answers at once with
    /// [`super::ServerConnection::answer_query`].
    Query(StatisticsQuery),
    /// The client has sent its demand.
    Demand,
    /// The client cancelled an unanswered call. The call is answered all the same: as rejected for
    /// [`RejectCode::Cancelled`] if that saves work.
    Cancel(RequestId),
    /// Any other valid frame: a registration, a deregistration, a ping or pong.
    Other,
}

/// An admitted call.
#[derive(Debug)]
pub struct Call<'a> {
    /// Returned with the answer.
    pub permit: Permit,
    /// The procedure.
    pub method: Method,
    /// Queueing delay that the call might still spend when it left its client.
    pub budget: Budget,
    /// Argument; borrowed from the connection's buffer.
    pub payload: &'a [u8],
}

/// A query of the server's statistics, [`leeward_wire::Method::STATISTICS`]. A query is no call,
/// and needs no credit.
#[derive(Debug)]
#[must_use = "a question is answered exactly once"]
pub struct StatisticsQuery {
    pub(super) request: RequestId,
    pub(super) timestamp: Timestamp,
}

/// Right and duty to answer one call. Not `Clone`: answering consumes it.
#[derive(Debug)]
#[must_use = "a call is answered exactly once"]
pub struct Permit {
    pub(super) request: RequestId,
    pub(super) timestamp: Timestamp,
    pub(super) credit: CreditId,
    pub(super) arrival: Time,
    pub(super) method: Method,
    /// The controller's pending request of the same call.
    pub(super) pending: server::PendingRequest,
}

impl Permit {
    /// The client's identifier of the call.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Arrival of the call's packet, on the plant's clock.
    pub fn arrival(&self) -> Time {
        self.arrival
    }
}

/// End of a call.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// With a result.
    Result(&'a [u8]),
    /// The call was executed and has no result; the text is for people.
    Failure(FailureCode, &'a str),
    /// The call was rejected. The text has details that the code does not show.
    Reject(RejectCode, &'a str),
}

/// Summary of an answered call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSummary {
    /// The procedure.
    pub method: Method,
    /// Time from its arrival to now.
    pub sojourn: Nanos,
    /// Reject code, if the call was rejected.
    pub rejection: Option<RejectCode>,
    /// Failure code, if the call was executed and failed.
    pub failure: Option<FailureCode>,
}

/// Protocol violation by the client, after which the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolViolation {
    /// Error code for the client.
    pub code: ErrorCode,
    /// Error message for the client.
    pub message: String,
}
