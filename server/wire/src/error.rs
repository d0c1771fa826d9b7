//! Errors of bytes that arrive, and of a frame that should leave.

use super::code::ErrorCode;
use super::header::{Field, Kind, Side, Version};

/// A hint for whoever connects with TLS to a port without, or the other way round: both begin records so.
fn hint(found: [u8; 2]) -> &'static str {
    match found {
        [0x14..=0x17, 3] => ". They are TLS's, and this side speaks no TLS here: use it at both ends, or at neither",
        _ => "",
    }
}

/// Reasons for which received bytes are no frame. A peer that sends one such byte has lost its place or doesn't speak
/// the protocol, so each of these is fatal to the connection: the receiver reads no further. Errors that leave the
/// connection whole travel as [`Kind::Failure`] and [`Kind::Drop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not this protocol at all.
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
    /// A version that this code speaks, in a stream of another one.
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
    /// A frame that only the other side sends.
    #[error("a {kind} frame must not come from the {from:?}")]
    Direction {
        /// Its kind.
        kind: Kind,
        /// Side that sent it.
        from: Side,
    },
    /// More payload than is accepted for this kind. Found in the header, before there is memory for any of it.
    #[error("a {kind} frame announces {length} B of payload; accepted: {limit} B")]
    PayloadTooLarge {
        /// The frame's kind.
        kind: Kind,
        /// Length that the header announces, in bytes.
        length: u32,
        /// Length that is accepted, in bytes; 0 for a kind that has no payload.
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
    /// A field has a value that means nothing.
    #[error("{field} can't be {value} in a {kind} frame")]
    Value {
        /// The frame's kind.
        kind: Kind,
        /// The first such field.
        field: Field,
        /// Value that was in it.
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
        /// Bytes of it that came.
        buffered: usize,
        /// Bytes that it has, as far as was known.
        needed: usize,
    },
}

impl WireError {
    /// Code that a server sends to the client whose bytes these were.
    pub fn code(&self) -> ErrorCode {
        match self {
            WireError::Version { .. } => ErrorCode::Version,
            WireError::PayloadTooLarge { .. } => ErrorCode::TooLarge,
            WireError::Direction { .. } => ErrorCode::Unexpected,
            _ => ErrorCode::Malformed,
        }
    }
}

/// Why a frame can't be encoded. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The peer would refuse the payload.
    #[error("{length} B of payload; the peer accepts {limit} B")]
    PayloadTooLarge {
        /// The payload's length in bytes.
        length: usize,
        /// Length that the peer accepts, in bytes.
        limit: u32,
    },
    /// The version does not have it.
    #[error("a {kind} frame that version {} does not have", version.number())]
    Version {
        /// The frame's kind.
        kind: Kind,
        /// The version that the encoder speaks.
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
