//! A client's transport, preceded by bytes that were read and put back. Does not contain HTTP.

use super::stream::{Protocol, Transport};
use bytes::Bytes;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// Bytes that are read at once to be dropped.
const UNREAD: usize = 4 << 10;
/// Longest time in which they are read, and longest wait for some.
const END_TIME: Duration = Duration::from_secs(10);
const END_IDLE: Duration = Duration::from_secs(1);

/// A client's transport.
pub(crate) struct ClientStream {
    prefix: Bytes,
    stream: Transport,
    flags: Arc<StreamFlags>,
}

/// What a client's transport shares with its connection, while hyper owns the transport.
#[derive(Debug, Default)]
pub(crate) struct StreamFlags {
    /// Whether bytes of hyper wait for room in the socket.
    has_unwritten: AtomicBool,
    must_check_end: AtomicBool,
}

impl StreamFlags {
    /// Whether all bytes that hyper had for the client have reached the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.has_unwritten.load(Ordering::Relaxed)
    }

    /// With true, the next flush fails if the client has closed its side. Without it, unread bytes
    /// hide the client's FIN.
    pub(crate) fn set_end_check(&self, is_on: bool) {
        self.must_check_end.store(is_on, Ordering::Relaxed);
    }

    fn set_unwritten(&self, has_unwritten: bool) {
        self.has_unwritten.store(has_unwritten, Ordering::Relaxed);
    }
}

impl ClientStream {
    pub(crate) fn new(stream: Transport) -> Self {
        ClientStream { prefix: Bytes::new(), stream, flags: Arc::default() }
    }

    /// Puts bytes back that a parser has read and not used.
    pub(crate) fn with_prefix(self, unused: Bytes) -> Self {
        // A copy: the parser's buffer of 8 KiB stays alive as long as any part of it, even an empty
        // one.
        let prefix = Bytes::from([unused, self.prefix].concat());
        ClientStream { prefix, ..self }
    }

    /// The protocol that was chosen in the handshake of TLS; `None`: without TLS, or without a
    /// choice.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.stream.protocol()
    }

    /// What stays readable while hyper owns the transport.
    pub(crate) fn flags(&self) -> Arc<StreamFlags> {
        Arc::clone(&self.flags)
    }

    /// Ends the connection after its last answer. The system resets a connection that is closed
    /// with unread bytes, and its client may lose the answer: so these are read first, until the
    /// client has sent nothing for a moment.
    pub(crate) async fn end(&mut self) {
        if poll_fn(|context| Pin::new(&mut *self).poll_shutdown(context)).await.is_err() {
            return;
        }
        let mut unread = [0; UNREAD];
        let read = async { while matches!(timeout(END_IDLE, self.read(&mut unread)).await, Ok(Ok(1..))) {} };
        let _ = timeout(END_TIME, read).await;
    }

    /// Closes the connection so that its client sees an error, and no orderly end.
    pub(crate) fn reset(self) {
        self.stream.set_reset();
    }

    /// Waits for the next byte; false: the client has gone.
    pub(crate) async fn has_byte(&mut self) -> bool {
        !self.prefix.is_empty() || self.stream.has_byte().await
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
        this.flags.set_unwritten(true);
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.flags.set_unwritten(true);
        Pin::new(&mut this.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it had. TLS keeps what the socket does not take.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.flags.set_unwritten(false);
        if this.flags.must_check_end.swap(false, Ordering::Relaxed) && this.stream.has_ended() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
