//! Why a connection is over.

use leeward_wire::{ErrorCode, Kind, WireError};

/// Why a connection carries nothing any more. Never about a single request: those have [`super::Event`]s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The server sent bytes that are no frame, or ended inside one.
    #[error("the server broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// The server sent a frame at a moment when it must not come.
    #[error("a {kind} frame came at the wrong moment")]
    Unexpected {
        /// Its kind.
        kind: Kind,
    },
    /// An answer to a call that is not waiting for one: never made, or answered before.
    #[error("an answer to request {request:#x}, which waits for none")]
    UnknownRequest {
        /// The identifier in the answer.
        request: u64,
    },
    /// An answer, or the welcome, that doesn't return the clock reading that was sent.
    #[error("a {kind} frame returned the timestamp {found} instead of {sent}")]
    TimestampMismatch {
        /// The frame's kind.
        kind: Kind,
        /// Timestamp that this client had sent.
        sent: u64,
        /// Timestamp that came back.
        found: u64,
    },
    /// The server asks for signs of life faster than it reads them.
    #[error("the server sent pings and did not read the answers")]
    PingFlood,
    /// The server said why it closes the connection.
    #[error("the server closed the connection: {code:?}: {message}")]
    Server {
        /// Why.
        code: ErrorCode,
        /// Why, for people.
        message: String,
    },
    /// The stream ended, although this client had not asked for it.
    #[error("the server closed the connection")]
    ClosedByServer,
    /// This side closed it.
    #[error("closed by this side")]
    LocallyClosed,
}

impl ConnectionError {
    /// Whether the server does not speak this client's version. Nothing that was sent to it had an effect, and it may speak an older one.
    pub fn refuses_version(&self) -> bool {
        matches!(self, ConnectionError::Server { code: ErrorCode::Version, .. })
    }
}
