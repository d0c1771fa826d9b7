//! The server's side: one [`ServerConnection`], sans I/O, for programs that drive sockets
//! themselves or have none.
//!
//! - `connection`: the connection.
//! - `event`: events for its owner.
//! - `enforcement`: checks that a client keeps to its window.
//! - `control_quota`: limits frames that are no calls.
//! - `decision_label`: names a decision in a rejection.
//! - `sender_clock`: estimates how old calls are, from the client's own clock.
//!
//! Does not decide whether a request is admitted or how many credits a session holds
//! (`leeward-core`), and executes no call.

mod connection;
mod control_quota;
mod decision_label;
mod enforcement;
mod event;
mod sender_clock;

pub use connection::{ServerConfig, ServerConnection};
pub use event::{Call, CallSummary, Event, Permit, ProtocolViolation, Reply, StatisticsQuery};
