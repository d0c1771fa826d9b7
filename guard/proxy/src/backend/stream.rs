//! A backend's transport. A backend may answer early (413, 401) and close its connection before it
//! has read the request: the rest is dropped then, and the answer is read. Does not contain HTTP.

use crate::transport::stream::Transport;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A backend's transport. Once the backend takes no more bytes, writes succeed and do nothing, and
/// reads end the connection.
pub(super) struct BackendStream {
    transport: Transport,
    takes_bytes: bool,
}

impl BackendStream {
    pub(super) fn new(transport: Transport) -> Self {
        BackendStream { transport, takes_bytes: true }
    }

    /// The result of writing `length` bytes.
    fn written(&mut self, result: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.takes_bytes = false;
                Poll::Ready(Ok(length))
            }
            result => result,
        }
    }
}

/// Whether the peer has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl AsyncRead for BackendStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_read(context, into)
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.takes_bytes {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = Pin::new(&mut this.transport).poll_write(context, bytes);
        this.written(result, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = bytes.iter().map(|piece| piece.len()).sum();
        if !this.takes_bytes {
            return Poll::Ready(Ok(length));
        }
        let result = Pin::new(&mut this.transport).poll_write_vectored(context, bytes);
        this.written(result, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.takes_bytes {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut this.transport).poll_flush(context) {
            // TLS writes what it holds.
            Poll::Ready(Err(error)) if is_closed(&error) => {
                this.takes_bytes = false;
                Poll::Ready(Ok(()))
            }
            result => result,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(context)
    }
}
