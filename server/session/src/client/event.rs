//! Events that a connection reports to its owner.

use leeward_core::client::LocalOutcome;
use leeward_core::units::Nanos;

use leeward_wire::{FailureCode, Message, PayloadLimit, Regime, RejectCode};

/// How one request ended. Each submitted request gives exactly one, whatever happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a, T> {
    /// A result came.
    Completed {
        /// The request.
        token: T,
        /// The result; lives in the connection's buffer.
        payload: &'a [u8],
        /// From when the request left to now: the network and the server.
        round_trip: Nanos,
        /// The server's part of it.
        sojourn: Nanos,
    },
    /// The server rejected it.
    Rejected {
        /// The request.
        token: T,
        /// Why.
        reason: RejectCode,
        /// Details for people: the lock's name for [`DropReason::Lock`]; empty most of the time.
        message: Message<'a>,
        /// The server's hint not to send anything for so long; zero is no hint.
        retry_after: Nanos,
        /// From when the request left to now.
        round_trip: Nanos,
        /// The server's part of it.
        sojourn: Nanos,
    },
    /// The server admitted it and has no result.
    Failed {
        /// The request.
        token: T,
        /// Why.
        code: FailureCode,
        /// Why, for people.
        message: Message<'a>,
        /// From when the request left to now.
        round_trip: Nanos,
        /// The server's part of it.
        sojourn: Nanos,
    },
    /// The request ended here without having been sent: expired, displaced or throttled.
    EndedLocally {
        /// The request.
        token: T,
        /// Why, and how long it had waited.
        end: LocalOutcome,
    },
    /// Its payload is longer than the server accepts. Before the welcome that is [`PayloadLimit::MIN`].
    TooLong {
        /// The request.
        token: T,
        /// Limit accepted now.
        limit: PayloadLimit,
    },
    /// The connection is over, or was when the request came.
    Disconnected {
        /// The request.
        token: T,
        /// Whether it had left.
        stage: RequestStage,
    },
}

impl<T> Event<'_, T> {
    /// The request that it is about.
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

/// Where a request was when its connection ended, or when it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStage {
    /// Still here: it had no effect and may be sent again.
    Waiting,
    /// Sent: whether it was executed is unknown.
    Sent,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No welcome yet.
    Registering,
    /// Requests may flow.
    Ready,
    /// No more calls will be sent; answers are still owed.
    Draining,
    /// Over.
    Closed,
}

/// Content of the server's welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WelcomeInfo {
    /// From the registration's departure to the welcome.
    pub round_trip: Nanos,
    /// The longest argument that the server accepts.
    pub payload_max: PayloadLimit,
    /// Meaning of windows.
    pub regime: Regime,
}
