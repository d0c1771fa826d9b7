//! The same tests over datagrams: those of the client, of asynchronous handlers, and of locks,
//! budgets and recordings.

use leeward_rpc::client::Transport;

const TRANSPORT: Transport = Transport::Udp;

#[allow(clippy::duplicate_mod, reason = "the same tests over another transport")]
#[path = "../async_handlers.rs"]
mod async_handlers;
#[allow(clippy::duplicate_mod, reason = "the same tests over another transport")]
#[path = "../client.rs"]
mod client;
#[allow(clippy::duplicate_mod, reason = "the same tests over another transport")]
#[path = "../locks.rs"]
mod locks;
