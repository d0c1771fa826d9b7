//! The server: connections over epoll on the cores of `leeward-runtime`, with a controller's fast half on each core.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - [`Handler`]: what a request does. [`AsyncHandler`]: the same for one that waits meanwhile.
//! - `execute`: how a core executes what it has admitted: at once, or as tasks.
//! - `network`: one core's sockets and sessions. `connection`: one connection's bytes. `receive`: reading with the kernel's timestamps.
//! - `acceptor`, `outbox`, `farewell`, `choices`: small [`parts`] of it.
//! - [`allocation`]: cores that come and go.
//! - `enforcement`: whether a client keeps to its window.
//! - [`Recording`]: what the controller was asked and decided, in a file.
//! - `shared`: what the cores share: the controller's slow half (`pulse`, `ticks`), counters, messages between cores (`mail`, `inbox`).
//!
//! Never here: whether a request is admitted and how many credits a session holds (`leeward-control`).

mod acceptor;
pub mod allocation;
mod async_handler;
mod builder;
mod choices;
mod connection;
mod enforcement;
mod execute;
mod farewell;
mod handler;
mod inbox;
mod mail;
mod network;
mod outbox;
mod pulse;
mod receive;
mod recording;
mod shared;
mod ticks;

/// What a server of another protocol on the same cores needs too (`services/kv`): taking connections, reading with the kernel's
/// timestamps, sending, ending, messages between cores, the controller's pulse and choices.
pub mod parts {
    pub use super::acceptor::{Acceptor, listen};
    pub use super::choices::Choices;
    pub use super::farewell::{Farewell, discard};
    pub use super::mail::Mail;
    pub use super::outbox::Outbox;
    pub use super::pulse::{Load, Pulse};
    pub use super::receive::{Came, Received, Receiver};
}

pub use async_handler::{AsyncHandler, OwnedRequest};
pub use builder::{Builder, Server, ServerError};
pub use handler::{Failed, Handler, Request};
pub use receive::IoUring;
pub use recording::{Recorded, Recording};
pub use shared::Counts;
