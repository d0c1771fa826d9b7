//! The memcached port: memcached's protocol on the engine of `leeward-engine`.
//!
//! A memcached client has no credits, so only the controller's rejections at the server take
//! effect: rejections by queueing delay, priority or limit. Those requests, and requests whose
//! locks are congested, get `SERVER_ERROR busy`.
//!
//! - [`Server`], [`Builder`]: starting, stopping and observing the port.
//! - `protocol`: the engine's [`Protocol`](leeward_engine::Protocol) over [`crate::protocol`],
//!   which has no sockets.
//!
//! Does not contain sockets and cores (`leeward-engine`), bytes of the protocol
//! ([`crate::protocol`]), or admission decisions (`leeward-core`).

mod builder;
mod protocol;

pub(crate) use builder::unix_seconds;
pub use builder::{Builder, Server};
pub use leeward_engine::{RequestCounts, ServerError};
