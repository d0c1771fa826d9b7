//! The server: connections over epoll on the cores of `leeward-runtime`, with a controller's fast half on each core.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - [`Handler`]: what a request does.
//! - `network`: one core's sockets and sessions. `connection`: one connection's bytes. `receive`: reading with the kernel's timestamps.
//! - `shared`: what the cores share: the controller's slow half, counters, messages between cores.
//!
//! Never here: whether a request is admitted and how many credits a session holds (`leeward-control`).

mod builder;
mod connection;
mod handler;
mod network;
mod receive;
mod shared;

pub use builder::{Builder, Server, ServerError};
pub use handler::{Failed, Handler, Request};
pub use shared::Counts;
