//! Requests over datagrams: both ends of a link, pure. Frames of Leeward's protocol enter at one
//! end and leave at the other, although the network loses, duplicates and reorders datagrams.
//! `docs/datagrams.md` is the specification.
//!
//! For engines and clients that carry the protocol over UDP. Entry points: [`client::Link`] and
//! [`server::Link`].
//!
//! - [`client::Link`], [`server::Link`]: the two ends. Each turns frames into datagrams, and
//!   datagrams into frames that are passed on once.
//! - [`address_validation::AddressValidation`]: validates a client's address by a stateless cookie,
//!   before a session exists.
//! - [`header`]: the 40 bytes before every frame. [`address_mark::AddressMark`]: the part of them
//!   that a socket filter checks.
//! - [`rtt::RttEstimator`]: the time-out of a request. [`congestion::CongestionWindow`]: calls that
//!   may be in flight after a loss.
//! - [`frame`]: the few fields of a frame that a link reads or changes. `control`: control frames,
//!   one after another.
//! - `lanes`: a client's calls in flight.
//!
//! Time, random numbers and sending are arguments. Does not contain sockets, clocks, threads or
//! admission decisions.
//!
//! # Example
//! ```
//! use leeward_core::units::Time;
//! use leeward_datagram::{DatagramSize, client, header::Header, server};
//! use leeward_wire::{Encoder, Frame, PayloadLimit, Register, Timestamp};
//!
//! let mut frames = Vec::new();
//! let payload_max = PayloadLimit::DEFAULT;
//! let register = Register { timestamp: Timestamp(1), demand: 0, payload_max };
//! Encoder::new(PayloadLimit::DEFAULT).append(&Frame::Register(register), &mut frames)?;
//!
//! let mut sent = Vec::new();
//! let mut link = client::Link::new(7, DatagramSize::DEFAULT, Time(1_000));
//! let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
//! let taken = link.send(Time(1_000), &frames, &mut out);
//! assert_eq!(taken, 64);
//! link.on_timer(Time(1_000), &mut out)?;
//! // The client requests a cookie before it sends its registration.
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
