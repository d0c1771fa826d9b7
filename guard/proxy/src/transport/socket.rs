//! A connected socket of TCP or Unix. Does not contain TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connected socket without an event loop, on its way to another thread.
#[derive(Debug)]
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Sets what every connection has: no delay of small packets, and probes while it is quiet.
    pub(crate) fn set_options(&self) {
        // A bad answer to these is no reason to reject a peer.
        if let Socket::Tcp(stream) = self {
            let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
            let _ = stream.set_nodelay(true);
        }
    }

    /// Waits for the next byte, which stays; false: the peer has gone.
    pub(crate) async fn has_byte(&self) -> bool {
        let mut byte = [0];
        match self {
            Socket::Tcp(stream) => matches!(stream.peek(&mut byte).await, Ok(1)),
            Socket::Unix(stream) => {
                let peek = || {
                    let flags = rustix::net::RecvFlags::PEEK;
                    Ok(rustix::net::recv(stream, &mut byte[..], flags)?.0)
                };
                matches!(stream.async_io(Interest::READABLE, peek).await, Ok(1))
            }
        }
    }

    /// Takes it from this thread's event loop.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Socket::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Socket::Unix(stream) => Detached::Unix(stream.into_std()?),
        })
    }
}

impl Detached {
    /// Gives it to the event loop of this thread.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Detached::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Detached::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A socket has no buffer of its own to flush.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
