//! TLS for both ends of a connection, by rustls.
//!
//! - [`ServerTls`], [`ClientTls`]: certificates, keys and authorities from files, which are read again when they change.
//! - [`Session`]: one connection. Ciphertext in, plaintext out, and back; nothing is moved here.
//! - [`Identity`]: the name by which a client's certificate says who it is. [`Broken`]: why there is no session.
//!
//! Never here: a socket, and when a handshake may run (the engine's).
//!
//! ```
//! use leeward_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
//!
//! // Files that are not there are said by name.
//! let files = ServerFiles { cert: "no.pem".into(), key: "no.key".into(), client_ca: None };
//! assert!(ServerTls::open(files).unwrap_err().to_string().contains("no.pem"));
//! let files = ClientFiles { ca: "no-ca.pem".into(), identity: None, name: None };
//! assert!(ClientTls::open(files).unwrap_err().to_string().contains("no-ca.pem"));
//! ```

#![forbid(unsafe_code)]

mod client;
mod error;
mod files;
mod identity;
mod reload;
mod server;
mod session;

pub use client::{ClientFiles, ClientTls, ServerName};
pub use error::{TlsError, TlsErrorReason};
pub use files::LoadError;
pub use identity::Identity;
pub use server::{ServerFiles, ServerTls};
pub use session::Session;

/// The protocol's name in the handshake (ALPN). A peer that names none is taken, too; a peer that names only others is not.
pub const ALPN: &[u8] = b"leeward";

/// Whether a connection that begins with this byte may be TLS: the type of a handshake's record.
pub fn is_tls_record(first: u8) -> bool {
    first == 0x16
}
