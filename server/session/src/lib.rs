//! Both ends of a connection of Leeward's protocol, pure: bytes go in; calls, credits and messages
//! come out.
//!
//! For engines and clients with an I/O loop of their own. Entry points: [`client::Connection`]
//! and [`server::ServerConnection`].
//!
//! - [`client`]: [`client::Connection`] turns requests into bytes and answers into events.
//! - [`server`]: [`server::ServerConnection`] turns bytes into admitted calls, and results into
//!   answers.
//!
//! `leeward-pair` tests both over a simulated connection in virtual time.
//!
//! # Example
//! ```
//! use leeward_core::params::Params;
//! use leeward_core::registry::Environment;
//! use leeward_core::units::{Nanos, Time};
//! use leeward_session::client::{Connection, ConnectionConfig, Phase};
//!
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let half = (leeward_core::none::ALGORITHM.build_client)(&Params::default(), &environment)?;
//! let mut connection: Connection<()> = Connection::new(half, ConnectionConfig::default());
//! // The first bytes for the socket register the client.
//! let bytes = connection.output(Time::ZERO).len();
//! assert!(bytes > 0 && connection.phase() == Phase::Registering);
//! connection.consume(Time::ZERO, bytes, &mut |_| ());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Time, random numbers and output buffers are arguments ([`leeward_host::ConnectionContext`] on
//! the server's side). Does not contain sockets, clocks, threads or admission decisions
//! (`leeward-core`).

#![forbid(unsafe_code)]

pub mod client;
pub mod server;
