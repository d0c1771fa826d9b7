//! Errors of a proxy that cannot start. Does not contain errors of its settings.

use leeward_tls::LoadError;
use std::io;
use std::path::PathBuf;

/// Error: the proxy cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The address is in use, is not local, or is malformed.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The settings name no backend.
    #[error("there is no backend")]
    NoBackend,
    /// A backend is the proxy itself.
    #[error("the backend {0} is this proxy itself; accepted: other servers")]
    OwnBackend(String),
    /// The address of the admin port is unusable, or that of the proxy or of a backend.
    #[error("`admin`: {address}: {reason}")]
    Admin {
        /// Requested address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of certificates is unusable.
    #[error("{section}: {source}")]
    Certificates {
        /// Section of the settings.
        section: &'static str,
        /// Error in the file.
        source: LoadError,
    },
    /// Files of certificates for clients and for backends are unusable.
    #[error("{server}; {client}")]
    BothCertificates {
        /// Error of those for clients.
        server: Box<ProxyError>,
        /// Error of those for backends.
        client: Box<ProxyError>,
    },
    /// The file of the access log cannot be written.
    #[error("`access-log-file`: {}: {source}", path.display())]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The system cannot start a thread or open a descriptor.
    #[error("can't start the proxy: {0}")]
    Thread(#[from] io::Error),
}
