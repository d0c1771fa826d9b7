//! The server's end: one [`ServerConnection`], sans I/O, for programs that drive sockets themselves or have none.
//!
//! - `connection`: the connection. `event`: what it tells its owner. `enforcement`: whether a client keeps to its window.
//!   `chatter`: how much it says besides its calls. `sender`: how old its calls are by its own clock.
//!
//! Never here: whether a request is admitted and how many credits a session holds (`leeward-core`), and what a call does.

mod connection;
mod control_quota;
mod decision_label;
mod enforcement;
mod event;
mod sender_clock;

pub use connection::{ServerConfig, ServerConnection};
pub use event::{Call, CallSummary, Event, Permit, ProtocolViolation, Reply, StatisticsQuery};
