//! TLS of a server: its certificate and key, and the authorities of its clients.

use crate::error::{Side, TlsError};
use crate::files::{self, LoadError};
use crate::reload::ReloadableConfig;
use crate::session::Session;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection};
use std::path::PathBuf;
use std::sync::Arc;

/// Files of a server, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate chain: the server's certificate and the intermediate ones.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Authorities of clients: a client without a certificate of theirs is rejected. `None`:
    /// clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// TLS configuration of a server. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ReloadableConfig<ServerConfig>>,
    files: Arc<ServerFiles>,
}

impl ServerTls {
    /// Loads the files, and reloads them after each change. If new files are unusable, the old
    /// configuration stays.
    ///
    /// # Errors
    /// Unusable files.
    pub fn open(files: ServerFiles) -> Result<Self, LoadError> {
        ServerTls::open_with_alpn(files, crate::ALPN)
    }

    /// Like [`ServerTls::open`], for another protocol by its ALPN name, such as `http/1.1`.
    ///
    /// # Errors
    /// Unusable files.
    pub fn open_with_alpn(files: ServerFiles, protocol: &'static [u8]) -> Result<Self, LoadError> {
        let ServerFiles { cert, key, client_ca } = files.clone();
        let watched = [cert, key].into_iter().chain(client_ca).collect();
        let files = Arc::new(files);
        let file_paths = Arc::clone(&files);
        Ok(ServerTls { config: ReloadableConfig::open(watched, move || load(&file_paths, protocol))?, files })
    }

    /// Begins a session with a new connection's client.
    ///
    /// # Errors
    /// The configuration permits no session, which [`ServerTls::open`] excludes.
    pub fn accept(&self) -> Result<Session, TlsError> {
        let connection = ServerConnection::new(self.config.current());
        connection.map(Session::server).map_err(|error| TlsError::from_rustls(&error, Side::Server))
    }

    /// Whether clients need a certificate.
    pub fn requires_client_cert(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Checks the files at once; the second check after a change loads them. A thread checks every
    /// second.
    pub fn check_files(&self) {
        self.config.check_files();
    }

    /// Number of reloads.
    pub fn reloads(&self) -> u64 {
        self.config.reloads()
    }

    /// Error of the newest files, if they are unusable.
    pub fn last_error(&self) -> Option<String> {
        self.config.last_error()
    }

    /// Takes the messages about changed files since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        self.config.take_messages()
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn load(files: &ServerFiles, protocol: &[u8]) -> Result<ServerConfig, LoadError> {
    let ServerFiles { cert, key, client_ca } = files;
    let provider = Arc::new(ring::default_provider());
    let unusable = |error: &rustls::Error| files::unusable(cert, key, error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unusable(&error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(files::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let unusable_ca = |error| LoadError::Unusable { path: path.clone(), reason: format!("{error}") };
            builder.with_client_cert_verifier(verifier.map_err(unusable_ca)?)
        }
    };
    let mut config =
        builder.with_single_cert(files::certificates(cert)?, files::key(key)?).map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // A reader of the network could replay early data, which is sent before the handshake's end.
    config.max_early_data_size = 0;
    if client_ca.is_none() {
        // Returning clients resume their session at a part of the cost. Tickets cost the server no
        // memory.
        config.ticketer = ring::Ticketer::new().map_err(|error| unusable(&error))?;
    } else {
        // No resumption: each connection verifies the client's certificate, which a resumed session
        // could outlive.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
