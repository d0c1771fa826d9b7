//! Bounds the bytes that the kernel buffers for a peer and has not sent.

use std::io;
use std::os::fd::BorrowedFd;

/// Makes the kernel accept no more bytes for `socket` while `bytes` are unsent.
///
/// # Errors
/// The kernel rejects the option.
pub fn set(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // SAFETY: the option is a number.
    unsafe { super::set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// Returns the bytes that a socket accepts while its peer reads nothing.
    fn accepted_bytes(lowat: Option<u32>) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        if let Some(bytes) = lowat {
            set(stream.as_fd(), bytes).unwrap();
        }
        stream.set_nonblocking(true).unwrap();
        let mut count = 0;
        loop {
            match stream.write(&[0; 1 << 16]) {
                Ok(more) => count += more,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return count;
                }
            }
        }
    }

    #[test]
    fn a_low_water_mark_limits_unsent_bytes_in_the_kernel() {
        assert!(accepted_bytes(Some(1 << 14)) < accepted_bytes(None));
    }
}
