//! Both ends of a connection of Leeward's protocol, pure: bytes go in; calls, credits and messages
//! come out.
//!
//! - [`client`]: [`client::Connection`] turns requests into bytes and answers into events.
//! - [`server`]: [`server::ServerConnection`] turns bytes into admitted calls, and results into
//!   answers.
//!
//! `leeward-pair` tests both over a simulated connection in virtual time.
//!
//! Time, random numbers and output buffers are arguments ([`leeward_host::ConnectionContext`] on
//! the server's side). Does not contain sockets, clocks, threads or admission decisions
//! (`leeward-core`).

#![forbid(unsafe_code)]

pub mod client;
pub mod server;
