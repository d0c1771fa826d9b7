//! A socket with TLS around it, on the client's side: what [`leeward_tls`] knows, moved by a socket that never waits.

use leeward_tls::Session;
use std::io::{self, ErrorKind, Read, Write};

/// Receives of one read that bring nothing to read, such as empty records: then others have their turn.
const RECEIVES: u32 = 64;

/// A socket whose bytes are encrypted. It reads and writes as the socket does, and never waits if that doesn't.
#[derive(Debug)]
pub struct TlsStream<T> {
    socket: T,
    session: Session,
    /// Bytes that are encrypted and have not left as a whole: the caller still has them.
    sealed: usize,
}

impl<T: Read + Write> TlsStream<T> {
    /// Puts a session that has just begun around a socket. The handshake goes on whenever something is read or written.
    pub fn new(socket: T, session: Session) -> Self {
        TlsStream { socket, session, sealed: 0 }
    }

    /// The socket.
    pub fn socket(&self) -> &T {
        &self.socket
    }

    /// The socket, to register it.
    pub fn socket_mut(&mut self) -> &mut T {
        &mut self.socket
    }

    /// Whether there are bytes that no socket will tell of.
    pub fn holds_plaintext(&self) -> bool {
        self.session.holds_plaintext()
    }

    /// Whether bytes wait for room in the socket.
    pub fn wants_send(&self) -> bool {
        self.session.wants_send()
    }
}

impl<T: Read + Write> Read for TlsStream<T> {
    /// Reads what there is. An error of TLS is [`ErrorKind::InvalidData`] and says in words what was wrong;
    /// [`ErrorKind::Interrupted`] is to be tried again.
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
                // Words of the handshake, or why it has failed; what finds no room goes with the next write.
                let _ = self.session.send(&mut self.socket);
            }
            match received {
                Ok(0) if self.session.is_handshaking() => {
                    let words = "the server has closed the connection within the TLS handshake: it has no room or no time \
                                 for one more, or another server stands there";
                    return Err(io::Error::new(ErrorKind::ConnectionAborted, words));
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
    /// Writes the beginning of `bytes`. After [`ErrorKind::WouldBlock`] the next call must begin with the same bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.sealed == 0 && !bytes.is_empty() {
            self.sealed = self.session.seal(bytes);
        }
        self.session.send(&mut self.socket)?;
        match std::mem::take(&mut self.sealed) {
            // The handshake goes on first.
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.send(&mut self.socket)
    }
}
