//! TLS for both ends of a connection, by rustls.
//!
//! For the ends of a connection that have an I/O loop of their own. Entry points:
//! [`ServerTls`], [`ClientTls`] and [`Session`].
//!
//! - [`ServerTls`], [`ClientTls`]: certificates, keys and authorities from files, which are
//!   reloaded after each change.
//! - [`ServerSetup`], [`ClientSetup`]: the same with several certificates, protocols, or the
//!   system's authorities.
//! - [`Session`]: one connection. Ciphertext in, plaintext out, and back; the caller moves all
//!   bytes.
//! - [`Identity`]: a client's name in its certificate. [`TlsError`]: the reason for a failed
//!   session.
//!
//! Contains no socket. The engine decides when a handshake may run.
//!
//! ```
//! use leeward_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
//!
//! // The error names a missing file.
//! let files = ServerFiles { cert: "no.pem".into(), key: "no.key".into(), client_ca: None };
//! assert!(ServerTls::open(files).unwrap_err().to_string().contains("no.pem"));
//! let files = ClientFiles { ca: "no-ca.pem".into(), identity: None, name: None };
//! assert!(ClientTls::open(files).unwrap_err().to_string().contains("no-ca.pem"));
//! ```

#![forbid(unsafe_code)]

mod certificates;
mod client;
mod error;
mod expiry;
mod files;
mod identity;
mod reload;
mod server;
mod session;
mod unverified;

pub use client::{Authorities, ClientFiles, ClientSetup, ClientTls, ServerName, is_server_name};
pub use error::{TlsError, TlsErrorReason};
pub use files::LoadError;
pub use identity::Identity;
pub use server::{ClientAuthentication, ServerFiles, ServerSetup, ServerTls};
pub use session::Session;

/// The protocol's name in the handshake (ALPN). A peer without ALPN names is accepted, too; a peer
/// with other names only is rejected.
pub const ALPN: &[u8] = b"leeward";

/// Whether a connection that begins with this byte may be TLS: the type of a handshake record.
pub fn is_tls_record(first: u8) -> bool {
    first == 0x16
}
