//! The client's end: one [`Connection`], sans I/O, for those who drive sockets themselves or have none.
//!
//! What may leave, and when, is decided by the client half of a `leeward-core` algorithm inside
//! `leeward_core::client::Client`: the same code as in the simulator. Never here: a decision of that kind.
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
//! // The token is whatever the caller knows a request by. It comes back in exactly one event.
//! let mut connection = Connection::new(parts, ConnectionConfig::default());
//! let request = Request { method: Method(3), payload: b"get a", priority: Priority::HIGHEST, random: 0 };
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
