//! The server: Leeward's protocol on the engine of `leeward-engine`.
//!
//! - [`Server`], [`Builder`]: start, observe and stop a server.
//! - [`Handler`]: executes requests. [`AsyncHandler`]: the same for requests that wait meanwhile.
//! - `protocol`: the engine's [`Protocol`](leeward_engine::Protocol) over the pure connection of
//!   `leeward-session`.
//! - `executor`: execution of admitted calls on a core: inline, or as tasks.
//!
//! Does not contain sockets and cores (`leeward-engine`), the rules of a connection
//! (`leeward-session`), or the decisions about admission and credits (`leeward-core`).

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
