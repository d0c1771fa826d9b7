//! Servers and clients over real sockets, in one process: both ends meet, and effects that only
//! sockets, threads and cores have. Other tests check the protocol in virtual time
//! (server/session/tests), and its bytes (server/wire/tests).
//!
//! - `serve`: starts servers. `relay`: a datagram network that loses, duplicates and reorders.
//! - `peer`: a client with scripted messages; `raw_client`: a short one, for handlers;
//!   `scripted_server`: a server with scripted messages.
//!
//! `LEEWARD_TEST_IO_URING=off` runs the tests as on a kernel without io_uring,
//! `LEEWARD_TEST_ALLOCATOR=delay` with cores that come and go. Tests that need their own process
//! are beside this directory.

use leeward_rpc::client::Transport;

/// Transport of the tests that run over each.
const TRANSPORT: Transport = Transport::Tcp;

mod async_handlers;
mod batches;
mod client;
mod client_faults;
mod cores;
mod datagrams;
mod faults;
mod locks;
mod order;
mod over_datagrams;
mod peer;
mod polled;
mod raw_client;
mod relay;
mod scripted_server;
mod serve;
mod server;
