//! TLS for the engine: sessions of `leeward-tls` as the engine's channels.
//!
//! Does not contain the meaning of certificates.

use leeward_engine::{Encryption, EncryptionError, PeerIdentity, SecureChannel};
use leeward_tls::{Identity, ServerTls, Session};
use std::io::{self, Write};

/// TLS of a server.
#[derive(Debug)]
pub(super) struct Tls(pub(super) ServerTls);

/// TLS session of one connection.
struct TlsChannel(Session);

fn tls_error(error: leeward_tls::TlsError) -> EncryptionError {
    EncryptionError { reason: error.reason.name(), message: error.message }
}

impl Encryption for Tls {
    fn recognises(&self, first: u8) -> bool {
        leeward_tls::is_tls_record(first)
    }

    fn accept(&self) -> Result<Box<dyn SecureChannel>, EncryptionError> {
        let session = self.0.accept().map_err(tls_error)?;
        Ok(Box::new(TlsChannel(session)))
    }

    fn renewals(&self) -> (u64, Option<String>) {
        (self.0.reloads(), self.0.last_error())
    }
}

impl SecureChannel for TlsChannel {
    fn absorb(&mut self, ciphertext: &[u8], into: &mut [u8]) -> Result<usize, EncryptionError> {
        self.0.absorb(ciphertext, into).map_err(tls_error)
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        self.0.take(into)
    }

    fn holds_plaintext(&self) -> bool {
        self.0.holds_plaintext()
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    fn is_resumed(&self) -> bool {
        self.0.is_resumed()
    }

    fn identity(&self) -> Option<PeerIdentity> {
        let identity = self.0.identity()?;
        Some(match identity {
            Identity::Uri(uri) => PeerIdentity::Uri(uri),
            Identity::Dns(name) => PeerIdentity::Dns(name),
            Identity::Fingerprint(hex) => PeerIdentity::Fingerprint(hex),
        })
    }

    fn seal(&mut self, bytes: &[u8]) -> usize {
        self.0.seal(bytes)
    }

    fn wants_send(&self) -> bool {
        self.0.wants_send()
    }

    fn send(&mut self, to: &mut dyn Write) -> io::Result<()> {
        self.0.send(to)
    }

    fn close(&mut self) {
        self.0.close();
    }
}
