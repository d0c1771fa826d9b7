//! A connected socket of TCP or Unix, whose writes may have a time-out. Does not contain TLS.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};

/// Silence of a peer after which TCP probes it, and probes without an answer that end the
/// connection.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// Longest time in which the peer may take no byte; `None`: no limit.
    write_timeout: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connected socket without an event loop, on its way to another thread.
#[derive(Debug)]
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        // Nagle's algorithm would hold back a small head until the last one is acknowledged. A bad
        // answer to these options is no reason to reject a peer.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        Socket { stream: Stream::Tcp(stream), write_timeout: None, timer: None }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Socket { stream: Stream::Unix(stream), write_timeout: None, timer: None }
    }
}

impl Socket {
    /// Fails a write after this time in which the peer has taken no byte.
    pub(crate) fn with_write_timeout(self, timeout: Duration) -> Self {
        Socket { write_timeout: Some(timeout), ..self }
    }

    /// This side's address; `None`: a Unix socket, or one whose peer has gone.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Has TCP find out whether the peer's machine has gone: many requests share the connection,
    /// and nobody opens another one. What the system does not support is left out.
    pub(crate) fn probe(&self) {
        let Stream::Tcp(stream) = &self.stream else { return };
        let _ = sockopt::set_tcp_keepidle(stream, PROBE_AFTER);
        let _ = sockopt::set_tcp_keepintvl(stream, PROBE_AFTER);
        let _ = sockopt::set_tcp_keepcnt(stream, PROBES);
        let _ = sockopt::set_tcp_user_timeout(stream, (PROBE_AFTER * (PROBES + 1)).as_millis() as u32);
    }

    /// Resets the connection when it is closed; one of Unix ends as any other.
    pub(crate) fn set_reset(&self) {
        if let Stream::Tcp(stream) = &self.stream {
            let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
    }

    /// Waits for the next byte, which stays; false: the peer has gone.
    pub(crate) async fn has_byte(&self) -> bool {
        matches!(self.peek(&mut [0]).await, Ok(1..))
    }

    /// Waits for bytes, and copies them; they stay. 0: the peer sends no more.
    pub(crate) async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.peek(into).await,
            Stream::Unix(stream) => {
                let peek = || Ok(rustix::net::recv(stream, &mut *into, rustix::net::RecvFlags::PEEK)?.0);
                stream.async_io(Interest::READABLE, peek).await
            }
        }
    }

    /// Whether the peer sends no more, even if it has sent bytes that nobody has read yet.
    pub(crate) fn has_ended(&self) -> bool {
        let socket = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&now)), Ok(1..))
    }

    /// Takes it from this thread's event loop.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self.stream {
            Stream::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Stream::Unix(stream) => Detached::Unix(stream.into_std()?),
        })
    }

    /// Ends a write that has waited for too long. The socket itself never does: a peer that is
    /// alive and does not read acknowledges every probe.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(timeout)) = (&written, self.write_timeout) else {
            self.timer = None;
            return written;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if timer.as_mut().poll(context).is_ready() {
            self.timer = None;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl Detached {
    /// Gives it to the event loop of this thread.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Detached::Tcp(stream) => TcpStream::from_std(stream)?.into(),
            Detached::Unix(stream) => UnixStream::from_std(stream)?.into(),
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        this.limit(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        };
        this.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A socket has no buffer of its own to flush.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
