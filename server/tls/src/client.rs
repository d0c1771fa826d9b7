//! TLS of a client: the authorities that it trusts, and its own certificate.

use crate::error::{Side, TlsError};
use crate::files::{self, LoadError};
use crate::reload::ReloadableConfig;
use crate::session::Session;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection};
use std::path::PathBuf;
use std::sync::Arc;

/// Name that a server's certificate must have.
pub type ServerName = rustls::pki_types::ServerName<'static>;

/// Files of a client, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The only authorities that the client trusts; the system's are not used.
    pub ca: PathBuf,
    /// The client's own certificate and its private key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name that a server's certificate must have. `None`: the host name of the connection.
    pub name: Option<String>,
}

/// TLS configuration of a client. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ReloadableConfig<ClientConfig>>,
    files: Arc<ClientFiles>,
    name: Option<ServerName>,
}

impl ClientTls {
    /// Loads the files, and reloads them after each change. If new files are unusable, the old
    /// configuration stays.
    ///
    /// # Errors
    /// Unusable files, or an invalid name.
    pub fn open(files: ClientFiles) -> Result<Self, LoadError> {
        ClientTls::open_with_alpn(files, crate::ALPN)
    }

    /// Like [`ClientTls::open`], for another protocol by its ALPN name, such as `http/1.1`.
    ///
    /// # Errors
    /// As [`ClientTls::open`].
    pub fn open_with_alpn(files: ClientFiles, protocol: &'static [u8]) -> Result<Self, LoadError> {
        let name = files.name.as_deref().map(server_name).transpose()?;
        let own = files.identity.iter().flat_map(|(cert, key)| [cert, key]);
        let watched = std::iter::once(&files.ca).chain(own).cloned().collect();
        let files = Arc::new(files);
        let file_paths = Arc::clone(&files);
        Ok(ClientTls { config: ReloadableConfig::open(watched, move || load(&file_paths, protocol))?, files, name })
    }

    /// The same configuration, for servers of this name, at every address.
    #[must_use]
    pub fn with_name(&self, name: &ServerName) -> Self {
        ClientTls { name: Some(name.clone()), ..self.clone() }
    }

    /// Name to expect of the server at `address`, such as `host:port`.
    ///
    /// # Errors
    /// The host is no valid server name.
    pub fn name_for(&self, address: &str) -> Result<ServerName, LoadError> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        server_name(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
    }

    /// Begins a session with the server of this name. The first handshake bytes wait in the
    /// session.
    ///
    /// # Errors
    /// The configuration permits no session, which [`ClientTls::open`] excludes.
    pub fn connect(&self, name: &ServerName) -> Result<Session, TlsError> {
        let connection = ClientConnection::new(self.config.current(), name.clone());
        connection.map(Session::client).map_err(|error| TlsError::from_rustls(&error, Side::Client))
    }

    /// The current configuration, for sessions that another crate runs.
    pub fn rustls_config(&self) -> Arc<ClientConfig> {
        self.config.current()
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

    /// Takes the messages about changed files since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        self.config.take_messages()
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn server_name(name: &str) -> Result<ServerName, LoadError> {
    ServerName::try_from(name.to_owned()).map_err(|_| LoadError::Name { name: name.chars().take(100).collect() })
}

fn load(files: &ClientFiles, protocol: &[u8]) -> Result<ClientConfig, LoadError> {
    let ClientFiles { ca, identity, name: _ } = files;
    let unusable = |error: &rustls::Error| LoadError::Unusable { path: ca.clone(), reason: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| unusable(&error))?;
    let builder = builder.with_root_certificates(files::authorities(ca)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(files::certificates(cert)?, files::key(key)?)
            .map_err(|error| files::unusable(cert, key, &error))?,
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    // A reader of the network could replay early data, which is sent before the handshake's end.
    config.enable_early_data = false;
    Ok(config)
}
