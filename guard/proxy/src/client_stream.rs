//! A client's socket, in front of it the bytes that were read from it already. It fails once its
//! client has read nothing for too long. Does not contain HTTP.

use bytes::Bytes;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A client's socket.
pub(crate) struct ClientStream {
    prefix: Bytes,
    stream: TcpStream,
    /// Whether all that was written has reached the socket.
    is_flushed: bool,
    /// Longest time that the client may read nothing while bytes wait for it.
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub(crate) fn new(stream: TcpStream, idle: Duration) -> Self {
        // Packets of no content: a bad answer to them is no reason to reject the client.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let _ = stream.set_nodelay(true);
        ClientStream { prefix: Bytes::new(), stream, is_flushed: true, idle, timer: None }
    }

    /// Puts bytes back that a parser has read and not used.
    pub(crate) fn with_prefix(self, unused: Bytes) -> Self {
        let prefix = if self.prefix.is_empty() { unused } else { [unused, self.prefix].concat().into() };
        ClientStream { prefix, ..self }
    }

    /// Whether all that was written has reached the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Waits for the next byte; false: the client has gone.
    pub(crate) async fn has_byte(&self) -> bool {
        let mut byte = [0];
        !self.prefix.is_empty() || matches!(self.stream.peek(&mut byte).await, Ok(1))
    }

    /// Ends a write that has waited for too long. The socket itself never does: a client that is
    /// alive and does not read acknowledges every probe.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.is_flushed = false;
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let idle = self.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
        if timer.as_mut().poll(context).is_ready() {
            self.timer = None;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, into);
        }
        let length = this.prefix.len().min(into.remaining());
        into.put_slice(&this.prefix.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
