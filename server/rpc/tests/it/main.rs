//! Servers and clients over real sockets, in one process: that they meet, and what only sockets, threads and cores do. The
//! protocol itself is checked in virtual time (server/session/tests), its bytes in server/wire/tests.
//!
//! - `serving`: starts servers. `relay`: a network for datagrams that loses, doubles and reorders. `peer`: a client that says what it is told to; `asker`: a short one, for handlers; `puppet`: a server of that kind.
//!
//! `LEEWARD_TEST_IO_URING=off` runs them as on a kernel without io_uring, `LEEWARD_TEST_ALLOCATOR=delay` with cores that come
//! and go. Tests that need a process of their own stand beside this folder.

use leeward_rpc::client::Transport;

/// Transport of the tests that are run over each.
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
