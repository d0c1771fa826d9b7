//! The client's side of the protocol, at two levels.
//!
//! - [`Client`] is for applications: asynchronous calls to one or more replicas, typed errors,
//!   reconnection, retries. A dedicated thread does the I/O. See `docs/client.md`.
//! - [`Connection`] is for callers that need less, or the last microsecond: one connection without
//!   I/O, from [`leeward_session::client`], which has an example.
//!
//! The client half of a `leeward-core` algorithm inside `leeward_core::client::Client` decides when
//! a call may leave: the same code as in the simulator. Does not contain such decisions.

mod builder;
mod call;
mod call_error;
mod counters;
mod datagrams;
pub(crate) mod driver;
mod encryption;
mod handle;
mod inbox;
mod polled_client;
mod response_future;
mod settings;
mod shared;
#[cfg(feature = "tls")]
mod tls;

pub use builder::{BuildError, Builder, REPLICAS_MAX};
pub use call::{CallOptions, Response};
pub use call_error::{CallError, Effect};
pub use counters::ClientCounts;
pub use datagrams::{DatagramStream, Transport};
pub use encryption::Encryption;
pub use handle::Client;
pub use leeward_datagram::DatagramSize;
pub use leeward_datagram::client::LinkCounts as DatagramCounts;
pub use leeward_session::client::{
    Connection, ConnectionConfig, ConnectionError, Event, Phase, Request, RequestStage, WelcomeInfo,
};
pub use polled_client::PolledClient;
pub use response_future::ResponseFuture;
#[cfg(feature = "tls")]
pub use tls::TlsStream;

/// Compiles the guide's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/client.md")]
struct Guide;
