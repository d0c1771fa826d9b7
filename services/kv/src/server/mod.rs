//! The memcached port: memcached's protocol on the engine of `leeward-engine`.
//!
//! A memcached client has no credits, so of a controller only what it refuses at the server takes effect: drops by queueing
//! delay, priority or limit. They, and requests whose locks are congested, are answered `SERVER_ERROR busy`.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - `protocol`: the engine's [`Protocol`](leeward_engine::Protocol) over [`crate::protocol`], which has no sockets.
//!
//! Never here: sockets and cores (`leeward-engine`), bytes of the protocol ([`crate::protocol`]), whether a request is admitted
//! (`leeward-core`).

mod builder;
mod protocol;

pub(crate) use builder::unix_seconds;
pub use builder::{Builder, Server};
pub use leeward_engine::{RequestCounts, ServerError};
