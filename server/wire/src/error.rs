//! Errors of received bytes and of frames that cannot be encoded.

use super::code::ErrorCode;
use super::header::{Field, Kind, Side, Version};

/// A hint for a connection with TLS at one end only: records begin with these bytes.
fn hint(found: [u8; 2]) -> &'static str {
    match found {
        [0x14..=0x17, 3] => ". They are TLS's, and this side speaks no TLS here: use it at both ends, or at neither",
        _ => "",
    }
}

/// Error of received bytes that are no frame. A peer that sends one such byte has lost its position
/// or speaks another protocol. So each error is fatal to the connection, and the receiver reads no
/// further. Errors that leave the connection intact travel as [`Kind::Failure`] and [`Kind::Drop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Another protocol.
    #[error("the bytes {found:02x?} begin no frame; a frame begins with `LW`{}", hint(*found))]
    Magic {
        /// The first two bytes.
        found: [u8; 2],
    },
    /// This protocol, in a version that this code doesn't speak.
    #[error("version {found} is not spoken here; 1 and 2 are")]
    Version {
        /// The peer's version.
        found: u8,
    },
    /// A version that this code speaks, in a stream of another version.
    #[error("a frame of version {} in a stream of version {}", found.number(), stream.number())]
    VersionMismatch {
        /// The frame's version.
        found: Version,
        /// The version of the frames before it.
        stream: Version,
    },
    /// No frame has this kind.
    #[error("no frame has kind {found}")]
    Kind {
        /// The kind byte.
        found: u8,
    },
    /// Only the other side may send this frame.
    #[error("a {kind} frame must not come from the {from:?}")]
    Direction {
        /// The frame's kind.
        kind: Kind,
        /// The side that sent it.
        from: Side,
    },
    /// The payload is longer than the receiver accepts for this kind. Found in the header, before
    /// memory is allocated.
    #[error("a {kind} frame announces {length} B of payload; accepted: {limit} B")]
    PayloadTooLarge {
        /// The frame's kind.
        kind: Kind,
        /// Length that the header announces, in bytes.
        length: u32,
        /// Accepted length, in bytes; 0 for a kind without payload.
        limit: u32,
    },
    /// A field that this kind doesn't use, or a reserved one, is not zero.
    #[error("{field} is not zero in a {kind} frame")]
    NotZero {
        /// The frame's kind.
        kind: Kind,
        /// The first such field.
        field: Field,
    },
    /// A field has an unknown or invalid value.
    #[error("{field} can't be {value} in a {kind} frame")]
    Value {
        /// The frame's kind.
        kind: Kind,
        /// The first such field.
        field: Field,
        /// The field's value.
        value: u64,
    },
    /// A message for people is not UTF-8.
    #[error("the message of a {kind} frame is not UTF-8")]
    Text {
        /// The frame's kind.
        kind: Kind,
    },
    /// The connection ended inside a frame.
    #[error("the stream ends inside a frame: {buffered} B of at least {needed} B")]
    Truncated {
        /// Bytes of the frame that arrived.
        buffered: usize,
        /// The frame's length, as far as it was known.
        needed: usize,
    },
}

impl WireError {
    /// Code that a server sends to the client that sent these bytes.
    pub fn code(&self) -> ErrorCode {
        match self {
            WireError::Version { .. } => ErrorCode::Version,
            WireError::PayloadTooLarge { .. } => ErrorCode::TooLarge,
            WireError::Direction { .. } => ErrorCode::Unexpected,
            _ => ErrorCode::Malformed,
        }
    }
}

/// Error of a frame that can't be encoded. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The peer would reject the payload.
    #[error("{length} B of payload; the peer accepts {limit} B")]
    PayloadTooLarge {
        /// The payload's length in bytes.
        length: usize,
        /// Length that the peer accepts, in bytes.
        limit: u32,
    },
    /// The version does not have this frame.
    #[error("a {kind} frame that version {} does not have", version.number())]
    Version {
        /// The frame's kind.
        kind: Kind,
        /// The encoder's version.
        version: Version,
    },
    /// The buffer is too short.
    #[error("the frame needs {needed} B; there are {available} B")]
    BufferTooSmall {
        /// The frame's length in bytes, header included.
        needed: usize,
        /// The buffer's length in bytes.
        available: usize,
    },
}
