//! Both ends of a connection of Leeward's protocol, pure: bytes go in, calls, credits and words come out.
//!
//! - [`client`]: the client's [`client::Connection`]. It turns requests into bytes and answers into events.
//! - [`server`]: the server's [`server::ServerConnection`]. It turns bytes into admitted calls, and their results into answers.
//!
//! `leeward-pair` tests both on a wire in virtual time.
//!
//! Time, chance and room for bytes are arguments ([`leeward_host::Desk`] on the server's side). Never here: a socket, a
//! clock, a thread, a decision about admission (`leeward-core`).

#![forbid(unsafe_code)]

pub mod client;
pub mod server;
