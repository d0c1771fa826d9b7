//! The PROXY protocol (haproxy.org, `proxy-protocol.txt`): the first bytes of a connection, by
//! which a proxy tells the address of its client. Does not contain sockets, or the choice of
//! trusted peers.
//!
//! - [`decode`]: reads a header. [`encode`]: writes one.

pub(crate) mod decode;
pub(crate) mod encode;

use std::net::SocketAddr;

/// Begins a header of version 2.
pub(crate) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version and command: a connection for somebody else, or the proxy's own.
pub(crate) const PROXIED: u8 = 0x21;
pub(crate) const LOCAL: u8 = 0x20;
/// Family and transport: TCP over IPv4, and over IPv6.
pub(crate) const TCP_4: u8 = 0x11;
pub(crate) const TCP_6: u8 = 0x21;

/// Addresses of the connection that a proxy passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}
