//! TLS of a client: the authorities that it trusts, and its own certificate.

use crate::error::{Side, TlsError};
use crate::files::{self, LoadError};
use crate::reload::ReloadableConfig;
use crate::session::Session;
use crate::unverified::Unverified;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

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

/// Authorities, files and choices of a client.
#[derive(Clone, Debug)]
pub struct ClientSetup {
    /// The authorities that sign servers' certificates.
    pub authorities: Authorities,
    /// The client's own certificate and its private key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name that a server's certificate must have. `None`: the host name of the connection.
    pub name: Option<String>,
    /// Protocols by their ALPN names, the preferred one first.
    pub protocols: Vec<Vec<u8>>,
}

/// Authorities that a client trusts.
#[derive(Clone, Debug)]
pub enum Authorities {
    /// Those in a file.
    File(PathBuf),
    /// These, such as the system's.
    Roots(Arc<RootCertStore>),
    /// Any certificate is accepted, that of an attacker as well.
    Unverified,
}

impl ClientSetup {
    fn new(files: ClientFiles, protocol: &[u8]) -> Self {
        let ClientFiles { ca, identity, name } = files;
        ClientSetup { authorities: Authorities::File(ca), identity, name, protocols: vec![protocol.to_vec()] }
    }
}

/// TLS configuration of a client. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ReloadableConfig<ClientConfig>>,
    setup: Arc<ClientSetup>,
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
        ClientTls::open_setup(ClientSetup::new(files, protocol))
    }

    /// Like [`ClientTls::open`], with other authorities or several protocols.
    ///
    /// # Errors
    /// As [`ClientTls::open`].
    pub fn open_setup(setup: ClientSetup) -> Result<Self, LoadError> {
        let name = setup.name.as_deref().map(server_name).transpose()?;
        let mut watched: Vec<_> = setup.identity.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]).collect();
        if let Authorities::File(path) = &setup.authorities {
            watched.push(path.clone());
        }
        let setup = Arc::new(setup);
        let to_load = Arc::clone(&setup);
        Ok(ClientTls { config: ReloadableConfig::open(watched, move |now| load(&to_load, now))?, setup, name })
    }

    /// The same configuration, for servers of this name, at every address.
    #[must_use]
    pub fn with_name(&self, name: &ServerName) -> Self {
        ClientTls { name: Some(name.clone()), ..self.clone() }
    }

    /// Name to expect of the server at `address`, such as `host:port` or `host`.
    ///
    /// # Errors
    /// The host is no valid server name.
    pub fn name_for(&self, address: &str) -> Result<ServerName, LoadError> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        if let Ok(address) = address.parse::<std::net::IpAddr>() {
            return Ok(ServerName::from(address));
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

    /// Reason for the end of a session that another crate runs.
    pub fn explain(error: &rustls::Error) -> TlsError {
        TlsError::from_rustls(error, Side::Client)
    }

    /// Checks the files at once; the second check after a change loads them. A thread checks every
    /// second.
    pub fn check_files(&self) {
        self.config.check_files();
    }

    /// Loads the files now, changed or not. If they are unusable, the old configuration stays.
    ///
    /// # Errors
    /// Unusable files.
    pub fn reload(&self) -> Result<(), LoadError> {
        self.config.reload()
    }

    /// Error of the newest files, if they are unusable.
    pub fn last_error(&self) -> Option<String> {
        self.config.last_error()
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
        f.debug_struct("ClientTls").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// Whether a certificate can have this name: a host name or an address.
pub fn is_server_name(name: &str) -> bool {
    server_name(name).is_ok()
}

fn server_name(name: &str) -> Result<ServerName, LoadError> {
    ServerName::try_from(name.to_owned()).map_err(|_| LoadError::Name { name: name.chars().take(100).collect() })
}

/// Loads the files; given a time, refuses a certificate that is not valid then.
fn load(setup: &ClientSetup, now: Option<SystemTime>) -> Result<ClientConfig, LoadError> {
    let provider = Arc::new(ring::default_provider());
    let path = match &setup.authorities {
        Authorities::File(path) => path.clone(),
        _ => PathBuf::new(),
    };
    let unusable = |error: &rustls::Error| LoadError::Unusable { path: path.clone(), reason: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unusable(&error))?;
    let builder = match &setup.authorities {
        Authorities::File(path) => builder.with_root_certificates(files::authorities(path)?),
        Authorities::Roots(roots) => builder.with_root_certificates(Arc::clone(roots)),
        Authorities::Unverified => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider))),
    };
    let mut config = match &setup.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(files::chain(cert, now)?.0, files::key(key)?)
            .map_err(|error| files::unusable(cert, key, &error))?,
    };
    config.alpn_protocols.clone_from(&setup.protocols);
    // A reader of the network could replay early data, which is sent before the handshake's end.
    config.enable_early_data = false;
    Ok(config)
}
