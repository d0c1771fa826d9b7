//! The server: Leeward's protocol on the engine of `leeward-engine`.
//!
//! - [`Server`], [`Builder`]: starting, stopping, looking at it.
//! - [`Handler`]: what a request does. [`AsyncHandler`]: the same for one that waits meanwhile.
//! - `protocol`: the engine's [`Protocol`](leeward_engine::Protocol) over the pure connection of `leeward-session`.
//! - `execute`: how a core executes what it has admitted: at once, or as tasks.
//!
//! Never here: sockets and cores (`leeward-engine`), the rules of a connection (`leeward-session`), whether a request is
//! admitted and how many credits a session holds (`leeward-core`).

mod async_handler;
mod builder;
pub(crate) mod cancelled;
pub(crate) mod executor;
mod handler;
pub(crate) mod protocol;
#[cfg(feature = "tls")]
mod tls;

pub use async_handler::{AsyncHandler, OwnedRequest};
pub use builder::{Builder, Server};
pub use handler::{Handler, HandlerError, Request};
pub use leeward_engine::{
    InheritedListener, IoUring, PeerIdentity, ServerError, TenantTable, UnknownIdentities, allocation,
};
pub use leeward_host::{Recording, RecordingSummary, RequestCounts};
