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
pub mod allocation;
mod backlog;
#[allow(unsafe_code)]
pub mod batch;
mod closing_handshake;
mod config;
mod connection_io;
mod controller_session;
mod core;
mod datagrams;
mod encryption;
mod event_source;
mod external_event_loop;
mod fair_shares;
mod free_buffers;
mod handle;
mod inbox;
mod input;
mod job;
mod limits;
mod mailboxes;
mod peer;
mod pending_handshakes;
mod poll_context;
mod protocol;
mod readiness;
mod receive;
mod receive_budget;
mod send_buffer;
mod server;
pub mod statistics;
mod stream;
mod task_timer;
mod tenants;
#[allow(unsafe_code)]
mod trim;
#[allow(unsafe_code)]
pub mod wait;
mod watch_source;

pub use acceptor::InheritedListener;
pub use closing_handshake::ClosingHandshake;
pub use config::{AllocatorConfig, Config, ServerError};
pub use controller_session::{ControllerSession, RequestOutcome};
pub use encryption::{Encryption, EncryptionError, HandshakeStatistics, PeerIdentity, SecureChannel};
pub use event_source::{EventSource, EventSources, PollStatus};
pub use external_event_loop::{AdmittedRequest, ExternalEventLoop};
pub use free_buffers::FreeBuffers;
pub use handle::Handle;
pub use input::{Input, ReceiveBuffer};
pub use job::{ConnectionId, Job};
pub use leeward_allocation::registry::AllocationPolicy;
pub use leeward_host::RequestCounts;
/// For servers that tell more of themselves than the engine knows.
pub use leeward_observe as observe;
pub use leeward_observe::Source;
pub use leeward_wire::{ClientProtocol, RejectCode};
pub use limits::Limits;
pub use poll_context::PollContext;
pub use protocol::{AnswerOutcome, CloseReason, ExecuteOutcome, Protocol, ProtocolEvent};
pub use receive::{IoUring, ReadOutcome, ReadState, SocketReader};
pub use server::{RunningServer, Server};
pub use statistics::Statistics;
pub use stream::Stream;
pub use task_timer::TaskTimer;
pub use tenants::{TenantTable, UnknownIdentities};
