//! Errors that end a connection.

use leeward_wire::{ErrorCode, Kind, WireError};

/// Error that ended a connection. The end of a single request is an [`super::Event`] instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The server sent bytes that are no frame, or the stream ended inside a frame.
    #[error("the server broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// The server sent a frame in a phase that forbids it.
    #[error("a {kind} frame came at the wrong moment")]
    Unexpected {
        /// Kind of the frame.
        kind: Kind,
    },
    /// The server answered a request that was never sent, or was answered before.
    #[error("an answer to request {request:#x}, which waits for none")]
    UnknownRequest {
        /// The identifier in the answer.
        request: u64,
    },
    /// An answer, a pong or the welcome did not return the timestamp that was sent.
    #[error("a {kind} frame returned the timestamp {found} instead of {sent}")]
    TimestampMismatch {
        /// Kind of the frame.
        kind: Kind,
        /// Timestamp that this client had sent.
        sent: u64,
        /// Timestamp in the server's frame.
        found: u64,
    },
    /// The server sends pings faster than it reads the pongs.
    #[error("the server sent pings and did not read the answers")]
    PingFlood,
    /// The server closed the connection with an error frame.
    #[error("the server closed the connection: {code:?}: {message}")]
    Server {
        /// Reason code.
        code: ErrorCode,
        /// Reason, for people.
        message: String,
    },
    /// The stream ended, although this client had not deregistered.
    #[error("the server closed the connection")]
    ClosedByServer,
    /// This side closed the connection.
    #[error("closed by this side")]
    LocallyClosed,
}

impl ConnectionError {
    /// Whether the server rejected this client's protocol version. No sent request had an effect,
    /// and the server may speak an older version.
    pub fn refuses_version(&self) -> bool {
        matches!(self, ConnectionError::Server { code: ErrorCode::Version, .. })
    }
}
