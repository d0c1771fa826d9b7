//! Bytes between the proxy and its peers: sockets of TCP and Unix, TLS over either. Does not contain
//! HTTP, or the choice of a backend.
//!
//! - [`listener`]: accepts [`socket::Socket`]s. [`stream::Transport`]: a socket, or TLS over one.
//! - [`client_stream`]: a client's transport, which ends if its client reads nothing.

pub(crate) mod address;
#[allow(dead_code)]
pub(crate) mod client_stream;
pub(crate) mod listener;
pub(crate) mod socket;
pub(crate) mod socket_file;
// TLS is not constructed yet.
#[allow(dead_code)]
pub(crate) mod stream;
