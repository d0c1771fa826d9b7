//! Events that a connection reports to its owner.

use leeward_core::client::LocalOutcome;
use leeward_core::units::Nanos;

use leeward_wire::{FailureCode, Message, PayloadLimit, Regime, RejectCode};

/// End of one request. Each submitted request produces exactly one event, unless it is cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a, T> {
    /// The server returned a result.
    Completed {
        /// The request.
        token: T,
        /// Result; borrowed from the connection's buffer.
        payload: &'a [u8],
        /// Time from sending the request to now: network and server.
        round_trip: Nanos,
        /// The server's part of the round trip.
        sojourn: Nanos,
    },
    /// The server rejected it.
    Rejected {
        /// The request.
        token: T,
        /// Reason.
        reason: RejectCode,
        /// Details for people: the lock's name for [`RejectCode::Lock`]; mostly empty.
        message: Message<'a>,
        /// The server's hint to send no request for this time; zero is no hint.
        retry_after: Nanos,
        /// Time from sending the request to now.
        round_trip: Nanos,
        /// The server's part of the round trip.
        sojourn: Nanos,
    },
    /// The server admitted the request but produced no result.
    Failed {
        /// The request.
        token: T,
        /// Reason.
        code: FailureCode,
        /// Reason, for people.
        message: Message<'a>,
        /// Time from sending the request to now.
        round_trip: Nanos,
        /// The server's part of the round trip.
        sojourn: Nanos,
    },
    /// The request ended in this client without being sent: expired, displaced or throttled.
    EndedLocally {
        /// The request.
        token: T,
        /// Reason, and the time that the request had waited.
        end: LocalOutcome,
    },
    /// The payload is longer than the server accepts. Before the welcome the limit is
    /// [`PayloadLimit::MIN`].
    TooLong {
        /// The request.
        token: T,
        /// Limit in force now.
        limit: PayloadLimit,
    },
    /// The connection is closed, or was closed when the request was submitted.
    Disconnected {
        /// The request.
        token: T,
        /// Whether the request had been sent.
        stage: RequestStage,
    },
}

impl<T> Event<'_, T> {
    /// The token of the request.
    pub fn token(&self) -> &T {
        match self {
            Event::Completed { token, .. }
            | Event::Rejected { token, .. }
            | Event::Failed { token, .. }
            | Event::EndedLocally { token, .. }
            | Event::TooLong { token, .. }
            | Event::Disconnected { token, .. } => token,
        }
    }
}

/// Stage of a request when its connection closed, or when it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStage {
    /// Not sent: it had no effect and may be sent again.
    Waiting,
    /// Sent: whether it was executed is unknown.
    Sent,
}

/// Phase of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The welcome has not arrived.
    Registering,
    /// Requests may be sent.
    Ready,
    /// No more calls will be sent; answers are still pending.
    Draining,
    /// Closed.
    Closed,
}

/// Content of the server's welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WelcomeInfo {
    /// Time from sending the registration to receiving the welcome.
    pub round_trip: Nanos,
    /// The longest argument that the server accepts.
    pub payload_max: PayloadLimit,
    /// Meaning of windows.
    pub regime: Regime,
}
