//! Bytes between the proxy and its peers: sockets of TCP and Unix, the PROXY protocol, TLS. Does
//! not contain HTTP, or the choice of a backend.
//!
//! - [`listener`]: accepts [`socket::Socket`]s. [`accept`]: what comes before HTTP, by
//!   [`handshakes`] and [`proxy_protocol`]. [`socket_file`]: the file of a Unix socket.
//! - [`stream::Transport`]: a socket, or TLS over one. [`client_stream`]: a client's.
//! - [`status`]: metrics, and certificates that change. [`counts`]: handshakes by result.
//!   [`messages`]: what the operator reads.

pub(crate) mod accept;
pub(crate) mod address;
pub(crate) mod client_stream;
pub(crate) mod counts;
pub(crate) mod handshakes;
pub(crate) mod listener;
pub(crate) mod messages;
pub(crate) mod proxy_protocol;
pub(crate) mod socket;
pub(crate) mod socket_file;
pub(crate) mod status;
pub(crate) mod stream;
