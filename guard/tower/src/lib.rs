//! Leeward for services built from tower's traits: axum, hyper and tonic.
//!
//! For services on axum, hyper or tonic, and for their clients. Entry points: [`slo`] and
//! [`client`].
//!
//! - [`slo`]: the layer. [`Slo`] has its settings; the layer makes a [`GuardedService`].
//! - [`Listener`], [`StampedStream`]: sockets that measure how long a request waited before it was
//!   read.
//! - [`headers`]: request headers that are read, and response headers of a rejection.
//! - [`client`]: clients that send less to a server that rejects.
//! - [`locks`]: locks for handlers and acquire queues for pools, which reject a request that would
//!   wait too long. [`LockRejection`] is the response.
//! - [`current_request`], [`carry`]: the request that a handler serves, for clients and locks
//!   inside it.
//! - [`rejection_response`], [`UnreadBody`]: the response to a rejected request, for other front
//!   ends.
//! - `axum::serve` (feature `axum`): both halves in one call.
//!
//! A rejection is a response, never an error of the stack: routers that pass no errors pass it.
//! `poll_ready` holds nothing of the gate, so idle connections hold no permit. A rejection releases
//! the resources that the inner service has reserved in `poll_ready`.
//!
//! ```no_run
//! # #[cfg(feature = "axum")]
//! # async fn run() -> std::io::Result<()> {
//! use axum::{Router, routing::get};
//! use leeward_tower::{ms, slo};
//!
//! let app = Router::new().route("/", get(|| async { "hello" }));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! leeward_tower::axum::serve(listener, app, slo(ms(20))).await
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "axum")]
pub mod axum;
mod body;
mod busy;
pub mod client;
mod compat;
mod drain;
mod future;
pub mod headers;
mod listener;
mod outgoing;
mod probe;
mod profile;
mod queue_wait;
mod rejection;
mod scope;
mod service;
mod settings;
mod stamp;
mod status;
#[cfg(feature = "tonic")]
mod tonic;

pub use body::GuardedBody;
pub use busy::LockRejection;
pub use drain::{Drain, UnreadBody};
pub use future::ResponseFuture;
pub use leeward_gate::{Class, Decision, DecisionId, DecisionReason, Gate, GateCounts, Mode, RequestInfo, Tenant};
/// Locks and acquire queues for handlers, which reject a request whose budget would not last.
pub use leeward_runtime::locks;
pub use listener::{Incoming, Listener, StampedStream};
pub use rejection::rejection_response;
pub use scope::{CarriedFuture, RequestContext, carry, current_request};
pub use service::GuardedService;
pub use settings::{EndOfRequest, Slo, hash, slo};
pub use stamp::{Connection, Stamp, connection};
pub use status::is_failed_call;

// Former names, for programs that use them.
#[doc(hidden)]
pub use {
    busy::LockRejection as Busy,
    leeward_gate::{DecisionReason as Reason, GateCounts as Counts, RequestInfo as Arriving},
    scope::{RequestContext as Serving, current_request as serving},
    settings::EndOfRequest as Until,
};

/// A duration in milliseconds.
pub const fn ms(milliseconds: u64) -> std::time::Duration {
    std::time::Duration::from_millis(milliseconds)
}
