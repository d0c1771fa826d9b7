//! A client's socket. It counts as an open connection for as long as it is open, as a tunnel, too,
//! and fails once its client has read nothing for too long. Does not contain HTTP.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A client's socket; `C` is dropped with it.
pub(crate) struct ClientStream<C> {
    stream: TcpStream,
    /// Longest time that the client may read nothing while bytes wait for it.
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    _counted: C,
}

impl<C> ClientStream<C> {
    pub(crate) fn new(stream: TcpStream, idle: Duration, counted: C) -> Self {
        // Packets of no content: a bad answer to them is no reason to reject the client.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let _ = stream.set_nodelay(true);
        ClientStream { stream, idle, timer: None, _counted: counted }
    }

    /// Ends a write that has waited for too long. The socket itself never does: a client that is
    /// alive and does not read acknowledges every probe.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
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

impl<C: Unpin> AsyncRead for ClientStream<C> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<C: Unpin> AsyncWrite for ClientStream<C> {
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

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
