//! The client's side of the protocol, at two levels.
//!
//! - [`Client`] is for applications: asynchronous calls at one or more replicas, typed errors, reconnection, retries. A
//!   thread of its own does the I/O. See `docs/client.md`.
//! - [`Connection`] is for those who need less or want the last microsecond: one connection, sans I/O. It turns requests
//!   into bytes and bytes into [`Event`]s, and leaves sockets, threads and clocks to whoever drives it.
//!
//! What may leave, and when, is decided by the client half of a `leeward-control` algorithm inside
//! `leeward_control::client::Client`: the same code as in the simulator. Never here: a decision of that kind.
//!
//! # Example of a connection
//! ```
//! use leeward_control::{registry::{Environment, Registry}, units::{Nanos, Priority, Time}};
//! use leeward_rpc::client::{Connection, ConnectionConfig, Request};
//! use leeward_rpc::wire::Method;
//!
//! let registry = Registry::builtin();
//! let algorithm = registry.find("none")?;
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let parts = (algorithm.build_client)(&algorithm.params(&[])?, &environment)?;
//!
//! // The token is whatever the caller knows a request by. It comes back in exactly one event.
//! let mut connection = Connection::new(parts, ConnectionConfig::default());
//! let request = Request { method: Method(3), payload: b"get a", priority: Priority::HIGHEST, random: 0 };
//! connection.submit(Time(1_000), "first", &request, &mut |event| println!("{event:?}"));
//!
//! // `Register`, and the one call that may be sent on trust.
//! assert_eq!(connection.output(Time(1_000)).len(), 64 + 64 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod call;
mod call_error;
mod connection;
mod counters;
mod driver;
mod error;
mod event;
mod gate;
mod handle;
mod inbox;
mod outbox;
mod response_future;
mod settings;
mod shared;
mod slots;

pub use builder::{BuildError, Builder, REPLICAS_MAX};
pub use call::{CallOptions, Response};
pub use call_error::{CallError, Effect};
pub use connection::{Connection, ConnectionConfig, Request};
pub use counters::Counts;
pub use error::ConnectionError;
pub use event::{Disconnected, Event, Phase, Welcomed};
pub use handle::Client;
pub use response_future::ResponseFuture;

/// The guide's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/client.md")]
struct Guide;
