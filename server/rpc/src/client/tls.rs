//! A socket with TLS on the client's side: the session of [`leeward_tls`] over a non-blocking
//! socket.

use leeward_tls::Session;
use std::io::{self, ErrorKind, Read, Write};

/// Receives per read without plaintext, such as empty records; then other connections get their
/// turn.
const RECEIVES: u32 = 64;

/// A socket whose bytes are encrypted. It reads and writes like the socket, and blocks only if the
/// socket does.
#[derive(Debug)]
pub struct TlsStream<T> {
    socket: T,
    session: Session,
    /// Length of the encrypted bytes that have not left completely; the caller still holds their
    /// plaintext.
    sealed: usize,
}

impl<T: Read + Write> TlsStream<T> {
    /// Wraps a socket with a new session. Reads and writes drive the handshake.
    pub fn new(socket: T, session: Session) -> Self {
        TlsStream { socket, session, sealed: 0 }
    }

    /// The socket.
    pub fn socket(&self) -> &T {
        &self.socket
    }

    /// The socket, for registration.
    pub fn socket_mut(&mut self) -> &mut T {
        &mut self.socket
    }

    /// Whether plaintext waits that the socket's readiness does not announce.
    pub fn holds_plaintext(&self) -> bool {
        self.session.holds_plaintext()
    }

    /// Whether bytes wait for space in the socket.
    pub fn wants_send(&self) -> bool {
        self.session.wants_send()
    }
}

impl<T: Read + Write> Read for TlsStream<T> {
    /// Reads available bytes.
    ///
    /// A TLS error is [`ErrorKind::InvalidData`] with a message. After [`ErrorKind::Interrupted`],
    /// read again.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        for _ in 0..RECEIVES {
            let count = self.session.take(into);
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            if self.session.has_ended() {
                return Ok(0);
            }
            let received = self.session.receive(&mut self.socket);
            if self.session.wants_send() {
                // Handshake messages, or a failure alert; the next write sends the rest.
                let _ = self.session.send(&mut self.socket);
            }
            match received {
                Ok(0) if self.session.is_handshaking() => {
                    let message = "the server closed the connection within the TLS handshake: it has reached a limit, or \
                                 another program listens there";
                    return Err(io::Error::new(ErrorKind::ConnectionAborted, message));
                }
                Ok(0) => return Ok(0),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::Interrupted.into())
    }
}

impl<T: Read + Write> Write for TlsStream<T> {
    /// Writes the beginning of `bytes`. After [`ErrorKind::WouldBlock`] the next call must begin
    /// with the same bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.sealed == 0 && !bytes.is_empty() {
            self.sealed = self.session.seal(bytes);
        }
        self.session.send(&mut self.socket)?;
        match std::mem::take(&mut self.sealed) {
            // The handshake continues first.
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.send(&mut self.socket)
    }
}
