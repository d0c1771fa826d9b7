//! The server: connections over epoll on the cores of `leeward-runtime`, with a controller's fast half on each core.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - [`Handler`]: what a request does. [`AsyncHandler`]: the same for one that waits meanwhile.
//! - `execute`: how a core executes what it has admitted: at once, or as tasks.
//! - `network`: one core's sockets and sessions. `connection`: one connection's bytes. `receive`: reading with the kernel's timestamps.
//! - [`allocation`]: cores that come and go.
//! - `enforcement`: whether a client keeps to its window.
//! - [`Recording`]: what the controller was asked and decided, in a file.
//! - `shared`: what the cores share: the controller's slow half (`ticks`), counters, messages between cores (`inbox`).
//!
//! Never here: whether a request is admitted and how many credits a session holds (`leeward-control`).

pub mod allocation;
mod async_handler;
mod builder;
mod connection;
mod enforcement;
mod execute;
mod handler;
mod inbox;
mod network;
mod receive;
mod recording;
mod shared;
mod ticks;

/// What a server of another protocol on the same cores needs too (`services/kv`): reading with the kernel's timestamps,
/// messages between cores, and the controller's ticks.
pub mod parts {
    pub use super::inbox::{Inbox, Wake};
    pub use super::receive::{Received, Receiver};
    pub use super::ticks::Ticks;
}

pub use async_handler::{AsyncHandler, OwnedRequest};
pub use builder::{Builder, Server, ServerError};
pub use handler::{Failed, Handler, Request};
pub use receive::IoUring;
pub use recording::{Recorded, Recording};
pub use shared::Counts;
