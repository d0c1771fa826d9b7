//! How much the kernel keeps of what a peer has not been sent yet.

use std::io;
use std::os::fd::BorrowedFd;

/// Has the kernel take no more for `socket` while it has `bytes` that have not left.
///
/// # Errors
/// The kernel's.
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

    /// Bytes that go into a socket whose peer reads nothing.
    fn goes_in(lowat: Option<u32>) -> usize {
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
    fn less_waits_in_the_kernel() {
        assert!(goes_in(Some(1 << 14)) < goes_in(None));
    }
}
