//! Events that a server's connection reports to its owner, and the owner's answers.

use leeward_core::server;
use leeward_core::units::{CreditId, Nanos, Time};
use leeward_wire::{Budget, ErrorCode, FailureCode, Method, RejectCode, RequestId, Timestamp};

/// Event from a client.
#[derive(Debug)]
pub enum Event<'a> {
    /// Nothing whole is left: more bytes are needed.
    Incomplete,
    /// A call was admitted. It is answered by [`super::ServerConnection::answer`], exactly once.
    Call(Call<'a>),
    /// A call was dropped, and the drop stands in the output.
    Rejected(RejectCode),
    /// The client asks for the server's statistics: answered by [`super::ServerConnection::tell`], at once.
    Query(StatisticsQuery),
    /// The client has said how many requests wait.
    Demand,
    /// Nobody waits for an unanswered call any more. It is answered all the same: as dropped for
    /// [`DropReason::Cancelled`] if that spares work.
    Cancel(RequestId),
    /// Anything else that was lawful: a registration, a farewell, a sign of life.
    Other,
}

/// An admitted call.
#[derive(Debug)]
pub struct Call<'a> {
    /// Goes back with the answer.
    pub permit: Permit,
    /// Which procedure.
    pub method: Method,
    /// Queueing delay that it might still spend when it left its client.
    pub budget: Budget,
    /// Its argument; lives in the connection's buffer.
    pub payload: &'a [u8],
}

/// A question about the server, [`leeward_wire::Method::STATISTICS`]. It is no call, and needs no credit.
#[derive(Debug)]
#[must_use = "a question is answered exactly once"]
pub struct StatisticsQuery {
    pub(super) request: RequestId,
    pub(super) timestamp: Timestamp,
}

/// The right to answer one call, and the duty. It can't be copied: answering gives it up.
#[derive(Debug)]
#[must_use = "a call is answered exactly once"]
pub struct Permit {
    pub(super) request: RequestId,
    pub(super) timestamp: Timestamp,
    pub(super) credit: CreditId,
    pub(super) arrival: Time,
    pub(super) method: Method,
    /// The controller's ticket of the same call.
    pub(super) pending: server::PendingRequest,
}

impl Permit {
    /// The client's name of the call.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// When its packet came, on the plant's clock.
    pub fn arrival(&self) -> Time {
        self.arrival
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// With a result.
    Result(&'a [u8]),
    /// The call was executed and has no result; the words are for people.
    Failure(FailureCode, &'a str),
    /// The call was given up; the words say what exactly, where the reason does not.
    Reject(RejectCode, &'a str),
}

/// The account of a call that its client hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSummary {
    /// Which procedure.
    pub method: Method,
    /// From its arrival to now.
    pub sojourn: Nanos,
    /// Why it was dropped, if it was.
    pub rejection: Option<RejectCode>,
    /// How it failed, if it was executed and did.
    pub failure: Option<FailureCode>,
}

/// An offence after which the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolViolation {
    /// The code that the client is told.
    pub code: ErrorCode,
    /// The words that it is told.
    pub message: String,
}
