//! The memcached port: connections over epoll on the cores of `leeward-runtime`, with a controller's fast half on each.
//!
//! A memcached client has no credits, so of a controller only what it refuses at the server takes effect: drops by queueing
//! delay, priority or limit. They, and requests whose locks are congested, are answered `SERVER_ERROR busy`.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - `network`: one core's sockets. `connection`: one connection's bytes. `ending`: how connections end.
//! - `shared`: what the cores share.
//!
//! Never here: the protocol ([`crate::protocol`]) and whether a request is admitted (`leeward-control`).

mod builder;
mod connection;
mod ending;
mod network;
mod shared;

pub(crate) use builder::unix_seconds;
pub use builder::{Builder, Server};
pub use shared::Counts;
