//! The engine under every protocol: listeners, sockets and cores, with a controller's fast half on
//! each core.
//!
//! For authors of protocols; `examples/http` is a whole one. Entry points: [`Protocol`] and
//! [`Config::start`].
//!
//! - [`Protocol`]: the interface of a protocol. Bytes go in; calls, responses and closes come out.
//! - [`Config`]: settings of every server; [`Config::start`] starts it. [`Server`]: observing and
//!   stopping it.
//! - [`Handle`]: the running engine, for a protocol and its tasks. [`PollContext`]: a protocol's
//!   access to the engine while it handles one connection.
//! - [`ControllerSession`]: a connection's session with the controller, for protocols without
//!   credits.
//! - `core`: one core's loop over its peers. `peer`: one connection's socket, bytes and protocol.
//! - [`Stream`]: the transport of a connection. `receive`: reading with the kernel's timestamps.
//!   [`batch`]: several sockets in one system call. `connection_io`, `datagrams`: sessions without
//!   a socket of their own. [`Encryption`]: the interface to TLS. `acceptor`, `send_buffer`,
//!   `backlog`, `closing_handshake`, `receive_budget`, `trim`: small parts.
//! - `fair_shares`: quotas of a core's time. `readiness`: order of reads and flushes.
//!   `pending_handshakes`: order and timeouts of handshakes. `mailboxes`, `inbox`: messages between
//!   cores.
//! - [`Input`], [`ReceiveBuffer`]: bytes on their way to a protocol.
//! - [`ExternalEventLoop`]: the engine without its threads, for servers with threads of their own;
//!   one thread at a time has it. [`wait`]: sleep of such a thread.
//! - [`EventSource`]: sources that cores poll besides their connections, such as a client.
//!   [`TaskTimer`]: timers to the microsecond.
//! - [`allocation`]: core allocation. [`Statistics`]: a server's statistics.
//!
//! # Example
//! ```
//! use leeward_engine::{Input, ReceiveBuffer};
//!
//! // The engine reads a connection's bytes; the protocol takes whole requests out of the buffer.
//! let mut buffer = ReceiveBuffer::new(1024);
//! let read = b"ping\npo";
//! buffer.spare()[..read.len()].copy_from_slice(read);
//! buffer.filled(read.len());
//! let end = buffer.bytes().iter().position(|byte| *byte == b'\n').unwrap();
//! assert_eq!(&buffer.bytes()[..end], b"ping");
//! buffer.consume(end + 1);
//! assert_eq!(buffer.buffered(), 2);
//! ```
//!
//! Does not contain the meaning of bytes (a protocol's), the admission decision (`leeward-core`),
//! or a request's work (a service's).

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
/// For servers that report more about themselves than the engine knows.
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
