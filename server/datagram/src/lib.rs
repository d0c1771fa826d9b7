//! Requests over datagrams: both ends of a link, pure. Frames of Leeward's protocol go in at one end and come out at the
//! other, whatever the network loses, doubles or reorders. `docs/datagrams.md` is the specification.
//!
//! - [`client::Link`], [`server::Link`]: the two ends. Each turns frames into datagrams, and datagrams into frames that are
//!   handed on once.
//! - [`door::Door`]: what a server knows of somebody who has no session: nothing but a cookie.
//! - [`header`]: the 40 bytes in front of every frame. [`mark::Mark`]: the part of them that a socket's filter looks at.
//! - [`round_trip::RoundTrip`]: the time-out of a request. [`bound::Bound`]: calls that may be under way after a loss.
//! - `frame`: the few fields of a frame that a link reads or changes. `words`: messages that are no calls, one after another.
//!
//! Time, chance and sending are arguments. Never here: a socket, a clock, a thread, a decision about admission.
//!
//! # Example
//! ```
//! use leeward_core::units::Time;
//! use leeward_datagram::{DatagramSize, client, header::Header, server};
//! use leeward_wire::{Encoder, Frame, PayloadLimit, Register, Timestamp};
//!
//! let mut frames = Vec::new();
//! let register = Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT };
//! Encoder::new(PayloadLimit::DEFAULT).append(&Frame::Register(register), &mut frames)?;
//!
//! let mut sent = Vec::new();
//! let mut link = client::Link::new(7, DatagramSize::DEFAULT, Time(1_000));
//! assert_eq!(link.send(Time(1_000), &frames, &mut |datagram: &[u8]| sent.push(datagram.to_vec())), 64);
//! link.on_timer(Time(1_000), &mut |datagram: &[u8]| sent.push(datagram.to_vec()))?;
//! // The client has said who it is, and asks for a cookie before it says anything else.
//! assert_eq!(Header::read(&sent[0]).unwrap().0.key, 7);
//! # let _ = server::LANES;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod address_mark;
pub mod address_validation;
pub mod client;
pub mod congestion;
mod control;
pub mod frame;
pub mod header;
mod lanes;
pub mod rtt;
pub mod server;
mod size;

pub use size::DatagramSize;
