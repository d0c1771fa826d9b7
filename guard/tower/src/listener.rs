//! Sockets that read with the kernel's receive stamps. Accepted connections inherit the option from
//! the listener, so that time in the accept queue counts. The time of a client whose connection the
//! kernel dropped because that queue was full does not. Does not contain protocols.

use crate::stamp::Stamp;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{Backlog, ControlMessageOwned, MsgFlags, TimestampingFlag, listen, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};

/// Size of the buffer for small requests. Most reads fit, and touch no more of the caller's buffer
/// than their bytes.
const SMALL: usize = 2_048;

/// A listener whose connections have stamps. Without kernel support, ages are unknown; that is no
/// error.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on this address.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Listener::new)
    }

    /// Enables receive stamps for this listener's connections, and as many that wait to be accepted
    /// as the system allows (`net.core.somaxconn`).
    pub fn new(listener: TcpListener) -> Self {
        prepare(&listener);
        // Tokio's 128 overflow in a stall. Who meets that comes again after seconds, which no stamp
        // shows. A listening socket may be told again.
        let _ = listen(&listener, Backlog::MAXALLOWABLE);
        Listener(listener)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// The system's error; the next call may succeed.
    pub async fn accept(&self) -> io::Result<(StampedStream, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((StampedStream::new(stream), peer))
    }

    /// The listener's address.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Makes a stream of connections, as tonic takes it. A failed accept is repeated after 20 ms.
    pub fn incoming(self) -> Incoming {
        Incoming { listener: self, pause: None }
    }
}

/// Connections of a [`Listener`], without end.
#[derive(Debug)]
pub struct Incoming {
    listener: Listener,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Incoming {
    /// Polls for the next connection. For implementations of `Stream`: this crate depends on no
    /// such trait.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<StampedStream> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(std::future::Future::poll(pause.as_mut(), context));
                self.pause = None;
            }
            match ready!(self.listener.0.poll_accept(context)) {
                Ok((stream, _)) => return Poll::Ready(StampedStream::new(stream)),
                // Most likely out of descriptors; connections that end return theirs.
                Err(_) => self.pause = Some(Box::pin(tokio::time::sleep(Duration::from_millis(20)))),
            }
        }
    }
}

fn prepare(socket: &impl AsFd) {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    let _ = setsockopt(socket, Timestamping, &flags);
}

/// A connection that records when the kernel received the bytes that it reads.
#[derive(Debug)]
pub struct StampedStream {
    stream: TcpStream,
    stamp: Stamp,
    control: Vec<u8>,
    small: Box<[u8; SMALL]>,
    /// The last read filled its buffer, so more bytes may wait.
    filled: bool,
}

impl StampedStream {
    /// Wraps a connection. If the listener did not enable stamps, they begin here.
    pub fn new(stream: TcpStream) -> Self {
        prepare(&stream);
        // Responses are small and awaited by the client.
        let _ = stream.set_nodelay(true);
        let control = nix::cmsg_space!([TimeSpec; 3]);
        StampedStream { stream, stamp: Stamp::default(), control, small: Box::new([0; SMALL]), filled: false }
    }

    /// The stamp of this connection, for its requests.
    pub fn stamp(&self) -> Stamp {
        self.stamp.clone()
    }

    /// Address of the peer.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

/// Returns the number of bytes read, and when the kernel received the last of them.
fn receive(stream: &TcpStream, into: &mut [u8], control: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    let mut slices = [IoSliceMut::new(into)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(control), MsgFlags::empty())?;
    let mut stamp = None;
    for part in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmTimestampsns(stamps) = part {
            stamp = Some(Duration::from(stamps.system)).filter(|stamp| !stamp.is_zero());
        }
    }
    Ok((message.bytes, stamp))
}

impl AsyncRead for StampedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let StampedStream { stream, stamp, control, small, filled } = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(stream.poll_read_ready(context))?;
            let mut received_bytes = None;
            // After a small read, the next is likely small: zeroing the rest of a large buffer
            // would cost more.
            let is_large = *filled;
            let target =
                if is_large { buffer.initialize_unfilled() } else { &mut small[..SMALL.min(buffer.remaining())] };
            let target_len = target.len();
            let read = stream.try_io(Interest::READABLE, || {
                let (bytes, received) = receive(stream, target, control)?;
                received_bytes = Some((bytes, received));
                // A stream socket that returns less than requested is empty (epoll(7), on edge
                // triggering). Reporting it saves a system call. Reporting it inside this call
                // hides no bytes that arrive meanwhile.
                if bytes > 0 && bytes < target_len { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if let Some((bytes, received)) = received_bytes {
                if is_large {
                    buffer.advance(bytes)
                } else {
                    buffer.put_slice(&small[..bytes])
                }
                if bytes > 0 {
                    stamp.note(received, is_large);
                }
                *filled = bytes == target_len;
                return Poll::Ready(Ok(()));
            }
            match read {
                Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Poll::Ready(Err(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for StampedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let StampedStream { stream, stamp, .. } = self.get_mut();
        let written = ready!(Pin::new(stream).poll_write(context, bytes));
        stamp.note_write();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let StampedStream { stream, stamp, .. } = self.get_mut();
        let written = ready!(Pin::new(stream).poll_write_vectored(context, slices));
        stamp.note_write();
        Poll::Ready(written)
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;
    use leeward_runtime::clock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Reads all bytes in pieces of any size, and measures the age of bytes that waited.
    #[tokio::test]
    async fn a_stream_reads_all_bytes_and_measures_their_age() {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let bytes = sent.clone();
        let peer = tokio::spawn(async move {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(&bytes).await.unwrap();
            peer
        });
        let (mut stamped, _) = listener.accept().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut read = vec![0; sent.len()];
        stamped.read_exact(&mut read).await.unwrap();
        assert!(read == sent);
        drop(peer.await.unwrap());
        assert_eq!(stamped.read(&mut read).await.unwrap(), 0, "the end is seen");
        // A kernel without stamps is no failure.
        assert!(stamped.stamp().age().is_none_or(|age| age < Duration::from_secs(60)));
    }

    /// Nobody accepts for a while. A client whose connection is dropped tries again after a second.
    #[tokio::test]
    async fn connections_wait_in_a_stall() {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let mut peers = Vec::new();
        for number in 0..200 {
            let connecting = TcpStream::connect(listener.local_addr().unwrap());
            let connected = tokio::time::timeout(Duration::from_millis(700), connecting).await;
            peers.push(connected.unwrap_or_else(|_| panic!("{number} wait")).unwrap());
        }
    }

    /// A client sends two requests at once, and the first takes long.
    #[tokio::test]
    async fn a_request_behind_its_own_connection_has_not_waited() {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        peer.write_all(b"12").await.unwrap();
        let (mut stamped, _) = listener.accept().await.unwrap();
        stamped.read_exact(&mut [0; 2]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let age = |stream: &StampedStream, version| stream.stamp().age_of(version, clock::process());
        let before = age(&stamped, Version::HTTP_11);
        stamped.write_all(b"1").await.unwrap();
        let (after, of_stream) = (age(&stamped, Version::HTTP_11), age(&stamped, Version::HTTP_2));
        assert_eq!(before.is_some(), after.is_some());
        if let (Some(before), Some(after), Some(of_stream)) = (before, after, of_stream) {
            assert!(before >= Duration::from_millis(300), "{before:?}");
            assert!(after < before && of_stream >= before, "{before:?} {after:?} {of_stream:?}");
        }
    }

    /// TLS 1.3: the client's last part of the handshake and its first request are one read, and the
    /// server writes session tickets in between.
    #[tokio::test]
    async fn a_request_that_arrives_with_the_end_of_a_handshake_has_waited() {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        peer.write_all(b"hello").await.unwrap();
        let (mut stamped, _) = listener.accept().await.unwrap();
        stamped.read_exact(&mut [0; 5]).await.unwrap();
        stamped.write_all(b"certificate").await.unwrap();
        peer.write_all(b"finished, request").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        stamped.read_exact(&mut [0; 17]).await.unwrap();
        stamped.write_all(b"tickets").await.unwrap();
        let age = stamped.stamp().age_of(Version::HTTP_11, clock::process());
        assert!(age.is_none_or(|age| age >= Duration::from_millis(300)), "{age:?}");
    }
}
