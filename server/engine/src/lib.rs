//! The engine under every protocol: listeners, sockets and cores, with a controller's fast half on each core.
//!
//! - [`Protocol`]: the seam. Bytes go in; calls, words and endings come out.
//! - [`Config`]: what every server can be told; [`Config::start`] starts it. [`Server`]: looking at it, stopping it.
//! - [`Handle`]: what a protocol and its tasks may ask of the running engine. [`Visit`]: what a protocol works with while it
//!   handles one connection.
//! - [`Account`]: a connection's account with the controller, for protocols without credits.
//! - `core`: one core's loop over its peers. `peer`: one connection's socket, bytes and protocol.
//! - [`Stream`]: the transport of a connection. `receive`: reading with the kernel's timestamps. [`batch`]: several sockets in
//!   one system call. `carrier`, `datagrams`: sessions without a socket of their own. [`Encryption`]: the seam to TLS. `acceptor`, `outbox`, `backlog`, `farewell`, `room`, `trim`: small parts.
//! - `fair_shares`: quotas of a core's time. `readiness`: which connections are read and flushed next. `pending_handshakes`: whose
//!   turn it is, and when a handshake is given up. `mail`, `inbox`: messages between cores.
//! - [`Input`], [`ReceiveBuffer`]: bytes on their way to a protocol.
//! - [`Front`]: the engine without its threads, for servers that bring their own; one of them at a time has it. [`wait`]: how such a
//!   thread sleeps.
//! - [`Guest`]: what cores poll besides their connections, such as a client's. [`AlarmClock`]: times to the microsecond.
//! - [`allocation`]: cores that come and go. [`Statistics`]: what a server tells of itself.
//!
//! Never here: what bytes mean (a protocol's), whether a request is admitted (`leeward-core`), what it does (a service's).

mod acceptor;
mod account;
mod alarm_clock;
pub mod allocation;
mod backlog;
#[allow(unsafe_code)]
pub mod batch;
mod carrier;
mod config;
mod core;
mod datagrams;
mod encryption;
mod fair_shares;
mod farewell;
mod front;
mod guest;
mod handle;
mod inbox;
mod input;
mod job;
mod limits;
mod mail;
mod outbox;
mod peer;
mod pending_handshakes;
mod protocol;
mod readiness;
mod receive;
mod room;
mod server;
mod spares;
pub mod statistics;
mod stream;
mod tenants;
#[allow(unsafe_code)]
mod trim;
mod visit;
#[allow(unsafe_code)]
pub mod wait;
mod watched;

pub use acceptor::Inherited;
pub use account::{Account, Settled};
pub use alarm_clock::AlarmClock;
pub use config::{Allocator, Config, ServerError};
pub use encryption::{Broken, Channel, Encryption, Handshakes, PeerIdentity};
pub use farewell::Farewell;
pub use front::{Front, Taken};
pub use guest::{Guest, Guests, Turn};
pub use handle::Handle;
pub use input::{Input, ReceiveBuffer};
pub use job::{ConnectionId, Job};
pub use leeward_allocation::registry::AllocationPolicy;
pub use leeward_host::Counts;
/// For servers that tell more of themselves than the engine knows.
pub use leeward_observe as observe;
pub use leeward_observe::Source;
pub use leeward_wire::{DropReason, Greeting};
pub use limits::Limits;
pub use protocol::{After, Ending, Next, Protocol, Ran};
pub use receive::{Came, IoUring, Received, Receiver};
pub use server::{Running, Server};
pub use spares::Spares;
pub use statistics::Statistics;
pub use stream::Stream;
pub use tenants::{Strangers, TenantTable};
pub use visit::Visit;
