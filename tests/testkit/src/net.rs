//! Ports of the loopback interface.

use std::net::{SocketAddr, TcpListener};

/// Returns an address on which no process listens now.
///
/// The system assigns other ports first, so the port stays free for a while. A test can use it for
/// a refused connection, or for a program that can't choose a port itself.
///
/// # Panics
/// If the system has no free port.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port of the loopback interface")
}
