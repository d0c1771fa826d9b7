//! Remote procedure calls under overload control, over TCP. `docs/protocol.md` specifies the
//! protocol.
//!
//! For services in Rust and their clients. Entry points: [`server::Server::builder`] and
//! [`client::Client::builder`].
//!
//! - [`server`]: the protocol for the engine (`leeward-engine`), and handlers. [`client`]: calls to
//!   one or more replicas.
//! - [`tier`]: servers that call leaves, under threading models that change with the load.
//! - [`address`]: addresses of a name, and the protocol spoken there.
//! - [`generator`]: requests that a load generator sends to a service.
//! - [`statistics`]: the one method that servers answer themselves.
//! - [`wire`]: the frames (`leeward-wire`). `tls`, with the feature of that name: certificates and
//!   keys from files (`leeward-tls`).
//!
//! # Example
//! ```
//! use leeward_rpc::client::Client;
//! use leeward_rpc::server::{HandlerError, Request, Server};
//! use leeward_rpc::wire::Method;
//!
//! let echo = |request: &Request<'_>, reply: &mut Vec<u8>| -> Result<(), HandlerError> {
//!     reply.extend_from_slice(request.payload);
//!     Ok(())
//! };
//! let server = Server::builder().cores(1).start("127.0.0.1:0", echo)?;
//! let client = Client::builder().replica(server.address().to_string()).build()?;
//! let response = pollster::block_on(client.call(Method(1), "hello"))?;
//! assert_eq!(response.payload, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain policy (`leeward-core`), sockets of the server (`leeward-engine`), or the rules
//! of a connection (`leeward-session`).

#![forbid(unsafe_code)]

pub mod address;
pub mod client;
pub mod generator;
pub mod server;
pub mod statistics;
pub mod tier;

#[cfg(feature = "tls")]
pub use leeward_tls as tls;
pub use leeward_wire as wire;
