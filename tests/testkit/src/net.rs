//! Ports of the loopback interface.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

/// Returns an address on which no process listens now.
///
/// The system assigns other ports first, so the port stays free for a while. It is for programs
/// that can't choose a port themselves; for a refused connection take [`vacant_address`].
///
/// # Panics
/// If the system has no free port.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port of the loopback interface")
}

/// Returns an address that refuses connections, and that no other socket gets until this process
/// ends: a connection has it.
///
/// # Panics
/// If the system has no free port.
pub fn vacant_address() -> SocketAddr {
    static HELD: Mutex<Vec<(TcpListener, TcpStream)>> = Mutex::new(Vec::new());
    let held = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| Ok((TcpStream::connect(listener.local_addr()?)?, listener)))
        .expect("a connection over the loopback interface");
    let address = held.0.local_addr().expect("a socket's own address");
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push((held.1, held.0));
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_vacant_address_refuses_and_is_nobodys() {
        let address = vacant_address();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
