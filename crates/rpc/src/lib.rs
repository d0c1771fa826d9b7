//! Remote procedure calls under overload control. So far the wire format ([`wire`]): typed frames to bytes and back,
//! without sockets, threads or clocks. `docs/protocol.md` is its specification. Never here: policy, which is
//! `leeward-control`'s.

#![forbid(unsafe_code)]

pub mod client;
pub mod server;
pub mod statistics;
mod sync;
pub mod wire;
