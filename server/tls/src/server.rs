//! TLS of a server: its certificate and key, and the authorities whose clients it takes.

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
    /// The certificate, and those between it and the authority.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Authorities of clients: who has no certificate of theirs is refused. `None`: clients need none.
    pub client_ca: Option<PathBuf>,
}

/// TLS of a server. Clones are the same one.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ReloadableConfig<ServerConfig>>,
    files: Arc<ServerFiles>,
}

impl ServerTls {
    /// Reads the files, and reads them again whenever they change. New files that can't be used change nothing.
    ///
    /// # Errors
    /// The files can't be used.
    pub fn open(files: ServerFiles) -> Result<Self, LoadError> {
        ServerTls::open_with_alpn(files, crate::ALPN)
    }

    /// The same for another protocol, under its name in the handshake (ALPN), such as `http/1.1`.
    ///
    /// # Errors
    /// The files can't be used.
    pub fn open_with_alpn(files: ServerFiles, protocol: &'static [u8]) -> Result<Self, LoadError> {
        let ServerFiles { cert, key, client_ca } = files.clone();
        let watched = [cert, key].into_iter().chain(client_ca).collect();
        let files = Arc::new(files);
        let of = Arc::clone(&files);
        Ok(ServerTls { config: ReloadableConfig::open(watched, move || load(&of, protocol))?, files })
    }

    /// Begins a session with a client that has connected.
    ///
    /// # Errors
    /// The configuration allows none, which [`ServerTls::open`] excludes.
    pub fn accept(&self) -> Result<Session, TlsError> {
        let connection = ServerConnection::new(self.config.current());
        connection.map(Session::server).map_err(|error| TlsError::from_rustls(&error, Side::Server))
    }

    /// Whether clients need a certificate.
    pub fn requires_client_cert(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Looks at the files at once; the second look after a change loads them. A thread does so every second.
    pub fn check_files(&self) {
        self.config.check_files();
    }

    /// How often new files were taken.
    pub fn reloads(&self) -> u64 {
        self.config.reloads()
    }

    /// Why the newest files are not used, if they are not.
    pub fn last_error(&self) -> Option<String> {
        self.config.last_error()
    }

    /// Words about files that have changed, since this was asked last.
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
    let refused = |error: &rustls::Error| files::unusable(cert, key, error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| refused(&error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(files::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let wrong = |error| LoadError::Unusable { path: path.clone(), reason: format!("{error}") };
            builder.with_client_cert_verifier(verifier.map_err(wrong)?)
        }
    };
    let mut config =
        builder.with_single_cert(files::certificates(cert)?, files::key(key)?).map_err(|error| refused(&error))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // Data before the handshake's end could be sent again by anybody who has heard it.
    config.max_early_data_size = 0;
    if client_ca.is_none() {
        // Clients that come back pay a part. Tickets cost the server no memory.
        config.ticketer = ring::Ticketer::new().map_err(|error| refused(&error))?;
    } else {
        // A certificate is looked at whenever its owner connects: a session that is taken up would outlive it.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
