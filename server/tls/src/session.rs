//! TLS of a connection, sans I/O: bounded buffers around rustls. Contains no socket.

use crate::error::{Side, TlsError};
use crate::identity::Identity;
use rustls::{ClientConnection, Connection, HandshakeKind, ServerConnection};
use std::io::{self, Read, Write};

/// Plaintext that one [`Session::seal`] takes at most, in bytes: two records. The rest waits at the
/// caller.
const SEALED: usize = 32 * 1024;

/// A TLS session over one connection. Its owner moves the bytes.
///
/// Memory is bounded: one incoming record (16 KiB), the plaintext of the last ciphertext, and
/// plaintext that [`Session::seal`] has taken and [`Session::send`] has not sent.
pub struct Session {
    connection: Box<Connection>,
    side: Side,
    /// Plaintext that waits for [`Session::take`], in bytes.
    pending_plaintext: usize,
    /// Whether the peer has announced its end.
    has_ended: bool,
}

impl Session {
    pub(crate) fn server(connection: ServerConnection) -> Self {
        Session::new(connection.into(), Side::Server)
    }

    pub(crate) fn client(connection: ClientConnection) -> Self {
        Session::new(connection.into(), Side::Client)
    }

    fn new(mut connection: Connection, side: Side) -> Self {
        connection.set_buffer_limit(Some(2 * SEALED));
        Session { connection: Box::new(connection), side, pending_plaintext: 0, has_ended: false }
    }

    /// Decrypts all of `ciphertext` into `into`. Returns the number of plaintext bytes.
    ///
    /// Further plaintext waits for [`Session::take`]. The caller must not pass more ciphertext
    /// while the plaintext of more than one record waits.
    ///
    /// # Errors
    /// The session has failed. [`Session::send`] sends the alert that waits for the peer.
    pub fn absorb(&mut self, mut ciphertext: &[u8], into: &mut [u8]) -> Result<usize, TlsError> {
        let mut filled = self.take(into);
        while !ciphertext.is_empty() && !self.has_ended {
            self.feed(&mut ciphertext)?;
            filled += self.take(&mut into[filled..]);
        }
        Ok(filled)
    }

    /// Reads ciphertext once from `from`, for a caller without a buffer. Returns the number of
    /// bytes, 0 at the end.
    ///
    /// # Errors
    /// The reader's; [`io::ErrorKind::InvalidData`] around a [`TlsError`] if the session has
    /// failed.
    pub fn receive(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        let count = self.connection.read_tls(from)?;
        self.process().map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken))?;
        Ok(count)
    }

    fn feed(&mut self, ciphertext: &mut &[u8]) -> Result<(), TlsError> {
        // Reading from memory only fails if the buffer is full, which the caller's limit excludes.
        let fed = self.connection.read_tls(ciphertext).unwrap_or(0);
        self.process()?;
        if fed == 0 && !self.has_ended {
            return Err(TlsError::new(crate::TlsErrorReason::Garbage, "a record that is longer than TLS allows"));
        }
        Ok(())
    }

    fn process(&mut self) -> Result<(), TlsError> {
        let state = self.connection.process_new_packets().map_err(|error| TlsError::from_rustls(&error, self.side))?;
        self.pending_plaintext = state.plaintext_bytes_to_read();
        self.has_ended |= state.peer_has_closed();
        Ok(())
    }

    /// Takes waiting plaintext. Returns the number of bytes, 0 if there is none.
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let mut taken = 0;
        while self.pending_plaintext > 0 && taken < into.len() {
            // Without plaintext, `read` returns an error or the end; both mean 0 here.
            let count = self.connection.reader().read(&mut into[taken..]).unwrap_or(0);
            if count == 0 {
                self.pending_plaintext = 0;
            }
            taken += count;
            self.pending_plaintext = self.pending_plaintext.saturating_sub(count);
        }
        taken
    }

    /// Whether plaintext waits to be taken.
    pub fn holds_plaintext(&self) -> bool {
        self.pending_plaintext > 0
    }

    /// Whether the peer has announced its end. Plaintext may still wait.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake has resumed an earlier session, at a part of the cost.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Identity of the peer; `None` without a certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.connection.peer_certificates().and_then(<[_]>::first).map(Identity::of)
    }

    /// Encrypts the beginning of `bytes`, up to a limit, and returns its length. During the
    /// handshake the bytes wait for its end.
    pub fn seal(&mut self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(SEALED);
        // Writing into memory does not fail.
        self.connection.writer().write(&bytes[..most]).unwrap_or(0)
    }

    /// Whether there is ciphertext to send.
    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends all waiting ciphertext.
    ///
    /// # Errors
    /// The writer's; unsent ciphertext waits for the next call.
    pub fn send(&mut self, to: &mut dyn Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(to) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Announces this side's end: the last record to be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Session { connection: _, side, pending_plaintext: waiting, has_ended } = self;
        let mut fields = f.debug_struct("Session");
        fields.field("side", side).field("waiting", waiting).field("has_ended", has_ended).finish_non_exhaustive()
    }
}
