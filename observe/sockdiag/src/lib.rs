//! Sockets of this host as the kernel describes them to every user.
//!
//! `sock_diag` (netlink) lists the sockets of a network namespace, as `ss` does. For each TCP
//! connection it tells the unread bytes and the time since the last data came and went; for each
//! listener its accept queue. So the queue in front of any service can be seen from outside,
//! without rights over the service and without its help.
//!
//! - [`SocketReader`]: asks the kernel. One question is one dump.
//! - [`TcpSocket`], [`TcpListener`], [`UnixSocket`], [`UdpSocket`]: what it answers.
//! - [`UnreadTracker`]: the age of a connection's oldest unread byte, as bounds, from one dump to
//!   the next.
//!
//! ```no_run
//! use leeward_sockdiag::{Namespace, SocketReader};
//!
//! let mut reader = SocketReader::open(&Namespace::Own)?;
//! let mut oldest = None;
//! reader.tcp_connections(Some(8080), &mut |socket| {
//!     if socket.unread > 0 {
//!         oldest = oldest.max(Some(socket.since_received));
//!     }
//! })?;
//! println!("the last bytes of the oldest unread request came {oldest:?} ago");
//! # Ok::<(), leeward_sockdiag::SockDiagError>(())
//! ```
//!
//! Contains no decision about what is slow, and no knowledge of processes.

#![forbid(unsafe_code)]

mod error;
mod reader;
mod socket;
mod tcp_info;
mod unread;

pub use error::SockDiagError;
pub use reader::{Namespace, SocketReader};
pub use socket::{TcpListener, TcpSocket, TcpState, UdpSocket, UnixSocket, UnixState};
pub use unread::{AgeBounds, UnreadTracker};
