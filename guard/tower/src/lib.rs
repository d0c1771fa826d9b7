//! Leeward in front of services made of tower's traits: axum, hyper and tonic.
//!
//! - [`slo`]: the layer. [`Slo`] has its settings, [`Guarded`] is the service that it makes.
//! - [`Listener`], [`Stamped`]: sockets that say how long a request had waited before anybody read it.
//! - [`headers`]: what is read of a request's headers, and what a refusal says.
//! - [`client`]: clients that send less to a server that refuses.
//! - [`locks`]: locks for handlers, and lines in front of pools, which refuse who would wait too long; [`Busy`] is the answer.
//! - [`serving`], [`carry`]: the request that a handler serves, for clients and locks inside of it.
//! - `axum::serve` (feature `axum`): both halves in one call.
//!
//! A refusal is a response, never an error of the stack: routers that carry no errors carry it.
//! Nothing of the gate is held in `poll_ready`, so that idle connections cost no permit, and a
//! refusal gives back what the service inside has reserved there.
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
mod drain;
mod future;
pub mod headers;
mod listener;
mod outgoing;
mod probe;
mod queue_wait;
mod rejection;
mod scope;
mod service;
mod settings;
mod stamp;
mod status;
#[cfg(feature = "tonic")]
mod tonic;
mod wall;

pub use body::GuardedBody;
pub use busy::LockRejection;
pub use future::ResponseFuture;
pub use leeward_gate::{Class, Decision, DecisionId, DecisionReason, Gate, GateCounts, Mode, RequestInfo, Tenant};
/// Locks and lines for handlers, which refuse a request whose budget would not last.
pub use leeward_runtime::locks;
pub use listener::{Incoming, Listener, StampedStream};
pub use scope::{CarriedFuture, RequestContext, carry, current_request};
pub use service::GuardedService;
pub use settings::{EndOfRequest, Slo, slo};
pub use stamp::{Connection, Stamp, connection};

/// So many milliseconds.
pub const fn ms(milliseconds: u64) -> std::time::Duration {
    std::time::Duration::from_millis(milliseconds)
}
