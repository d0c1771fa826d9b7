//! Remote procedure calls under overload control, over TCP. `docs/protocol.md` specifies the
//! protocol.
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
