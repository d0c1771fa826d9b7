//! Sockets of this host as the kernel describes them to every user.
//!
//! For tools that watch services from outside, such as `leeward watch`. Entry points:
//! [`SocketReader`] and [`UnreadTracker`].
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
//! ```
//! use leeward_sockdiag::{Namespace, SocketReader};
//! use std::io::Write;
//! use std::net::{TcpListener, TcpStream};
//!
//! // A service that has not read a request of five bytes.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! TcpStream::connect(address)?.write_all(b"hello")?;
//! let _connection = listener.accept()?;
//!
//! let mut unread = 0;
//! let mut reader = SocketReader::open(&Namespace::Own)?;
//! reader.tcp_connections(Some(address.port()), &mut |socket| unread += socket.unread)?;
//! assert!(unread >= 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
pub use socket::{LastData, TcpListener, TcpSocket, TcpState, UdpSocket, UnixSocket, UnixState};
pub use unread::{AgeBounds, UnreadTracker};
