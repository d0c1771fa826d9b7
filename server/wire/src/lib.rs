//! The wire format: [`Frame`]s, the protocol's only messages, to bytes and back. Pure: bytes and
//! frames are arguments, the caller owns sockets and clocks.
//!
//! For authors of clients and servers of the protocol. Entry points: [`Encoder`], [`Decoder`]
//! and [`Frame`].
//!
//! Where to look:
//! - [`Frame`]: the thirteen kinds of frame, with types that can't hold a value that the wire can't
//!   carry.
//! - [`Decoder`]: a bounded buffer between a socket and frames; [`decode`] does the same for bytes
//!   elsewhere in memory.
//! - [`Encoder`]: appends frames to a send buffer.
//! - [`WireError`]: error of bytes that are no frame. Always fatal to their connection.
//! - [`ClientProtocol`]: a client's protocol, recognized by its first bytes.
//! - [`ServerProtocol`]: a server's protocol, recognized by its first bytes.
//! - [`Kind`], [`Field`]: the layout, as a table that the code, the tests and `docs/protocol.md`
//!   share.
//!
//! Accepted bytes are canonical: a decoded frame encodes to the same bytes again.
//!
//! # Example
//! ```
//! use leeward_core::server::Feedback;
//! use leeward_core::units::{Credits, Nanos, Priority};
//! use leeward_wire::{
//!     Answer, Budget, Call, CreditId, Decoder, Encoder, Frame, Method, Nanos32, PayloadLimit,
//!     RequestId, Response, Side, Timestamp,
//! };
//!
//! // The client appends frames to a buffer of its own.
//! let call = Call {
//!     request: RequestId::new(7).unwrap(),
//!     timestamp: Timestamp(1_000),
//!     credit: CreditId::NONE,
//!     method: Method(3),
//!     demand: 2,
//!     budget: Budget::of(Nanos::from_micros(80)),
//!     priority: Priority::HIGHEST,
//!     payload: b"get a",
//! };
//! let mut wire = Vec::new();
//! Encoder::new(PayloadLimit::DEFAULT).append(&Frame::Call(call), &mut wire)?;
//! assert_eq!(wire.len(), 64 + 5);
//!
//! // The server moves bytes from its socket into the decoder, in arbitrary pieces.
//! let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
//! let spare = decoder.spare();
//! spare[..wire.len()].copy_from_slice(&wire);
//! decoder.advance(wire.len());
//! assert_eq!(decoder.next_frame()?, Some(Frame::Call(call)));
//! assert_eq!(decoder.next_frame()?, None);
//!
//! // The answer carries the next window, the client's clock, and the time that the server had the
//! // request.
//! let answer = Answer {
//!     request: call.request,
//!     timestamp: call.timestamp,
//!     feedback: Feedback { window: Credits(4), credit: CreditId(12), ..Feedback::NONE },
//!     sojourn: Nanos32::saturating(Nanos::from_micros(12)),
//! };
//! wire.clear();
//! let response = Frame::Response(Response { answer, payload: b"1" });
//! Encoder::new(PayloadLimit::DEFAULT).append(&response, &mut wire)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod client_protocol;
mod code;
mod decoder;
mod encoder;
mod error;
mod frame;
mod header;
mod server_protocol;
mod value;

pub use client_protocol::ClientProtocol;
pub use code::{ErrorCode, FailureCode, Regime, RejectCode};
pub use decoder::{DecodeStatus, Decoder, decode};
pub use encoder::Encoder;
pub use error::{EncodeError, WireError};
pub use frame::{
    Answer, Call, Cancel, Credit, Demand, Failure, FatalError, Frame, Ping, Pong, Register, Rejection, Response,
    Welcome,
};
pub use header::{Field, HEADER_LEN, Kind, MAGIC, Side, Version};
pub use leeward_core::units::CreditId;
pub use server_protocol::ServerProtocol;
pub use value::{Budget, MESSAGE_MAX, Message, Method, Nanos32, PayloadLimit, RequestId, Timestamp};
