//! The client's side: one [`Connection`], sans I/O, for programs that drive sockets themselves or
//! have none.
//!
//! The client half of a `leeward-core` algorithm decides when a request is sent. The half runs
//! inside `leeward_core::client::Client`, the same code as in the simulator. This module contains
//! no such decision.
//!
//! # Example
//! ```
//! use leeward_core::registry::Environment;
//! use leeward_core::units::{Nanos, Priority, Time};
//! use leeward_session::client::{Connection, ConnectionConfig, Request};
//! use leeward_wire::Method;
//!
//! let registry = leeward_controllers::builtin();
//! let algorithm = registry.find("none")?;
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let parts = (algorithm.build_client)(&algorithm.params(&[])?, &environment)?;
//!
//! // The token is the caller's name for a request. Exactly one event returns it.
//! let mut connection = Connection::new(parts, ConnectionConfig::default());
//! let method = Method(3);
//! let request = Request { method, payload: b"get a", priority: Priority::HIGHEST, random: 0 };
//! connection.submit(Time(1_000), "first", &request, &mut |event| println!("{event:?}"));
//!
//! // `Register`, and the one call that may be sent on trust.
//! assert_eq!(connection.output(Time(1_000)).len(), 64 + 64 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod error;
mod event;
mod gate;
mod send_buffer;
mod slots;

pub use connection::{Connection, ConnectionConfig, Request};
pub use error::ConnectionError;
pub use event::{Event, Phase, RequestStage, WelcomeInfo};
