//! The transport of a connection: ordered bytes. TCP is one implementation.

use crate::batch::lowat;
use crate::closing_handshake::{ClosingHandshake, discard};
use crate::receive::{ReadOutcome, SocketReader};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that the kernel buffers before sending, about: enough to keep sending while more is
/// written.
const NOT_SENT: u32 = 128 * 1024;

/// A connection's transport with readiness events. A protocol never sees it.
pub trait Stream: Sized + Send + 'static {
    /// Takes over an accepted connection.
    ///
    /// # Errors
    /// The connection can't be used.
    fn accept(stream: TcpStream) -> io::Result<Self>;

    /// Registers the socket, so that the poll reports its readiness under `token`.
    ///
    /// # Errors
    /// Registration with the poll failed.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Ends the reports of readiness.
    fn deregister(&mut self, registry: &Registry);

    /// Reads once.
    ///
    /// # Errors
    /// The transport's error, except that nothing was there.
    fn receive(&mut self, receiver: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// The transport's error, including [`io::ErrorKind::WouldBlock`].
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// The socket, if its bytes are the stream's own. Several such sockets can share one system
    /// call.
    fn raw(&self) -> Option<BorrowedFd<'_>>;

    /// Ends this half. The peer's half may go on.
    ///
    /// # Errors
    /// The transport's error.
    fn shutdown(&self) -> io::Result<()>;

    /// Returns whether the connection was reset, or is broken for another reason that the system
    /// knows.
    fn is_broken(&self) -> bool;

    /// Reads and discards bytes while `discarded`, their total count, is at most `most`.
    fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake;
}

impl Stream for TcpStream {
    fn accept(stream: TcpStream) -> io::Result<Self> {
        // A small response must not wait for the acknowledgement of the previous one.
        stream.set_nodelay(true)?;
        SocketReader::prepare(&stream);
        // Bytes that a peer does not take wait in the send buffer, where they are counted, and not
        // in megabytes of kernel memory. A kernel without the option is no error.
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
