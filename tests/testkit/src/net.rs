//! Ports of the loopback interface.

use std::net::{SocketAddr, TcpListener};

/// An address at which nobody listens now. The system hands out other ports first, so that it stays free for a while: enough
/// to be refused there, or to start a program that can't choose a port itself.
///
/// # Panics
/// If the system has no port.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port of the loopback interface")
}
