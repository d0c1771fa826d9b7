//! TLS of a client: the authorities whose servers it trusts, and its own certificate.

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
    /// Authorities that servers are trusted by. There are no others: the system's are not asked.
    pub ca: PathBuf,
    /// The client's own certificate and its private key, where servers want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name that a server's certificate must have. `None`: the host that is connected to.
    pub name: Option<String>,
}

/// TLS of a client. Clones are the same one.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ReloadableConfig<ClientConfig>>,
    files: Arc<ClientFiles>,
    name: Option<ServerName>,
}

impl ClientTls {
    /// Reads the files, and reads them again whenever they change. New files that can't be used change nothing.
    ///
    /// # Errors
    /// The files can't be used, or the name is none.
    pub fn open(files: ClientFiles) -> Result<Self, LoadError> {
        ClientTls::open_with_alpn(files, crate::ALPN)
    }

    /// The same for another protocol, under its name in the handshake (ALPN), such as `http/1.1`.
    ///
    /// # Errors
    /// As [`ClientTls::open`].
    pub fn open_with_alpn(files: ClientFiles, protocol: &'static [u8]) -> Result<Self, LoadError> {
        let name = files.name.as_deref().map(server_name).transpose()?;
        let own = files.identity.iter().flat_map(|(cert, key)| [cert, key]);
        let watched = std::iter::once(&files.ca).chain(own).cloned().collect();
        let files = Arc::new(files);
        let of = Arc::clone(&files);
        Ok(ClientTls { config: ReloadableConfig::open(watched, move || load(&of, protocol))?, files, name })
    }

    /// The same, for servers of this name, wherever they are.
    #[must_use]
    pub fn with_name(&self, name: &ServerName) -> Self {
        ClientTls { name: Some(name.clone()), ..self.clone() }
    }

    /// Name to expect of the server at `address`, such as `host:port`.
    ///
    /// # Errors
    /// The host is no name of a server.
    pub fn name_for(&self, address: &str) -> Result<ServerName, LoadError> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        server_name(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
    }

    /// Begins a session with the server of this name: its first words wait in the session.
    ///
    /// # Errors
    /// The configuration allows none, which [`ClientTls::open`] excludes.
    pub fn connect(&self, name: &ServerName) -> Result<Session, TlsError> {
        let connection = ClientConnection::new(self.config.current(), name.clone());
        connection.map(Session::client).map_err(|error| TlsError::from_rustls(&error, Side::Client))
    }

    /// Looks at the files at once; the second look after a change loads them. A thread does so every second.
    pub fn check_files(&self) {
        self.config.check_files();
    }

    /// How often new files were taken.
    pub fn reloads(&self) -> u64 {
        self.config.reloads()
    }

    /// Words about files that have changed, since this was asked last.
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
    let refused = |error: &rustls::Error| LoadError::Unusable { path: ca.clone(), reason: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| refused(&error))?;
    let builder = builder.with_root_certificates(files::authorities(ca)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(files::certificates(cert)?, files::key(key)?)
            .map_err(|error| files::unusable(cert, key, &error))?,
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    // Data before the handshake's end could be sent again by anybody who has heard it.
    config.enable_early_data = false;
    Ok(config)
}
