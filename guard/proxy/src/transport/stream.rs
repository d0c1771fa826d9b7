//! A socket, or TLS over one, to a client or a backend. Does not contain handshakes.

use super::socket::Socket;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// Protocol that both sides chose in the handshake of TLS (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Protocols for clients, the preferred one first.
    pub(crate) const OFFERED_TO_CLIENTS: &[Protocol] = &[Protocol::Http2, Protocol::Http1];
    /// Protocols for backends, the preferred one first.
    pub(crate) const OFFERED_TO_BACKENDS: &[Protocol] = &[Protocol::Http2, Protocol::Http1];

    /// The name in the handshake.
    pub(crate) const fn name(self) -> &'static [u8] {
        match self {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        }
    }
}

/// Bytes of a connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(Socket),
    /// On the heap, so that plain connections are small.
    Tls(Box<TlsStream<Socket>>),
}

impl Transport {
    /// The protocol that was chosen in the handshake; `None`: there was no handshake, or no choice.
    #[allow(dead_code)]
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        let Transport::Tls(stream) = self else { return None };
        let name = stream.get_ref().1.alpn_protocol()?;
        [Protocol::Http1, Protocol::Http2].into_iter().find(|protocol| protocol.name() == name)
    }

    /// Whether the bytes are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Transport::Tls(_))
    }

    /// Has TCP find out whether the peer's machine has gone.
    pub(crate) fn probe(&self) {
        match self {
            Transport::Plain(socket) => socket.probe(),
            Transport::Tls(stream) => stream.get_ref().0.probe(),
        }
    }

    /// Resets the connection when it is closed.
    pub(crate) fn set_reset(&self) {
        match self {
            Transport::Plain(socket) => socket.set_reset(),
            Transport::Tls(stream) => stream.get_ref().0.set_reset(),
        }
    }

    /// Whether the peer sends no more, even if it has sent bytes that nobody has read yet.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_ended(),
            Transport::Tls(stream) => stream.get_ref().0.has_ended(),
        }
    }

    /// Waits for the next byte, which stays; false: the peer has gone. The byte may be one of TLS
    /// and bring none of HTTP.
    pub(crate) async fn has_byte(&mut self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_byte().await,
            Transport::Tls(stream) => {
                // What the session has decrypted is in the socket no longer.
                let state = match &mut **stream {
                    TlsStream::Server(stream) => stream.get_mut().1.process_new_packets(),
                    TlsStream::Client(stream) => stream.get_mut().1.process_new_packets(),
                };
                match state {
                    Ok(state) if state.plaintext_bytes_to_read() > 0 => true,
                    Ok(_) => stream.get_ref().0.has_byte().await,
                    Err(_) => false,
                }
            }
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(socket) => Pin::new(socket).poll_read(context, into),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(socket) => Pin::new(socket).poll_write_vectored(context, bytes),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(socket) => Pin::new(socket).poll_flush(context),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
