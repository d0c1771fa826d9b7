//! The transport of a connection: ordered bytes, whatever carries them. TCP is one.

use crate::batch::lowat;
use crate::closing_handshake::{ClosingHandshake, discard};
use crate::receive::{ReadOutcome, SocketReader};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that the kernel keeps of what has not left, about: enough to go on with while more is written.
const NOT_SENT: u32 = 128 * 1024;

/// A connection's transport, told of by readiness. A protocol never sees it.
pub trait Stream: Sized + Send + 'static {
    /// Takes over a connection that was accepted.
    ///
    /// # Errors
    /// The connection can't be used.
    fn accept(stream: TcpStream) -> io::Result<Self>;

    /// Has readiness told under `token`.
    ///
    /// # Errors
    /// The registry's.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Has readiness told no more.
    fn deregister(&mut self, registry: &Registry);

    /// Reads once what is there.
    ///
    /// # Errors
    /// The transport's, but for having nothing.
    fn receive(&mut self, receiver: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// The transport's, [`io::ErrorKind::WouldBlock`] among them.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// The socket, if its bytes are the stream's own: then several may be read or written in one system call.
    fn raw(&self) -> Option<BorrowedFd<'_>>;

    /// Ends this half. The peer's may go on.
    ///
    /// # Errors
    /// The transport's.
    fn shutdown(&self) -> io::Result<()>;

    /// Whether the connection has been reset, or can't go on for another reason that the system knows.
    fn is_broken(&self) -> bool;

    /// Reads bytes and throws them away, as long as `discarded`, the count of all of them, is not more than `most`.
    fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake;
}

impl Stream for TcpStream {
    fn accept(stream: TcpStream) -> io::Result<Self> {
        // A small answer must not wait for the acknowledgement of the one before it.
        stream.set_nodelay(true)?;
        SocketReader::prepare(&stream);
        // What a peer does not take waits here, where it is counted, and not in megabytes that the kernel would copy. A kernel that can't is no error.
        let _ = lowat::set(stream.as_fd(), NOT_SENT);
        Ok(stream)
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn deregister(&mut self, registry: &Registry) {
        let _ = registry.deregister(self);
    }

    fn receive(&mut self, receiver: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome> {
        receiver.receive(self, into)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn raw(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn shutdown(&self) -> io::Result<()> {
        TcpStream::shutdown(self, Shutdown::Write)
    }

    fn is_broken(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }

    fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake {
        discard(&*self, discarded, most)
    }
}
