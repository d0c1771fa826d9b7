//! TLS of a server: its certificate and key, and the authorities of its clients.

use crate::certificates::Certificates;
use crate::error::{Side, TlsError};
use crate::expiry::Validity;
use crate::files::{self, LoadError};
use crate::reload::ReloadableConfig;
use crate::session::Session;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

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

/// Files of a server that may have several certificates, in PEM, and what it asks and offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSetup {
    /// Certificate chains and their keys, at least one. A client that asks for a name gets the
    /// first one that is valid for it; another client gets the first one.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// Certificates of clients.
    pub clients: ClientAuthentication,
    /// Protocols by their ALPN names, the preferred one first.
    pub protocols: Vec<Vec<u8>>,
}

/// Whether clients need a certificate, and the file of authorities that sign them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// Clients are not asked.
    #[default]
    None,
    /// A client may have none; a certificate that it shows must be valid.
    Optional(PathBuf),
    /// A client without a certificate is rejected.
    Required(PathBuf),
}

impl ClientAuthentication {
    fn authorities(&self) -> Option<&PathBuf> {
        match self {
            ClientAuthentication::None => None,
            ClientAuthentication::Optional(path) | ClientAuthentication::Required(path) => Some(path),
        }
    }
}

impl ServerSetup {
    fn new(files: ServerFiles, protocol: &[u8]) -> Self {
        let ServerFiles { cert, key, client_ca } = files;
        let clients = client_ca.map_or(ClientAuthentication::None, ClientAuthentication::Required);
        ServerSetup { certificates: vec![(cert, key)], clients, protocols: vec![protocol.to_vec()] }
    }
}

/// A loaded configuration.
struct Loaded {
    config: Arc<ServerConfig>,
    /// The validity of each chain, in the order of the certificates.
    validities: Vec<Option<Validity>>,
}

/// Interval of the warnings about certificates that expire.
const WARN_INTERVAL: Duration = Duration::from_secs(86_400);

/// TLS configuration of a server. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ReloadableConfig<Loaded>>,
    setup: Arc<ServerSetup>,
    /// Time of the last warning about certificates that expire.
    warned: Arc<Mutex<Option<SystemTime>>>,
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
        ServerTls::open_setup(ServerSetup::new(files, protocol))
    }

    /// Like [`ServerTls::open`], with several certificates or protocols.
    ///
    /// # Errors
    /// Unusable files.
    pub fn open_setup(setup: ServerSetup) -> Result<Self, LoadError> {
        let own = setup.certificates.iter().flat_map(|(cert, key)| [cert, key]);
        let watched = own.chain(setup.clients.authorities()).cloned().collect();
        let setup = Arc::new(setup);
        let to_load = Arc::clone(&setup);
        let config = ReloadableConfig::open(watched, move |now| load(&to_load, now))?;
        Ok(ServerTls { config, setup, warned: Arc::default() })
    }

    /// Begins a session with a new connection's client.
    ///
    /// # Errors
    /// The configuration permits no session, which [`ServerTls::open`] excludes.
    pub fn accept(&self) -> Result<Session, TlsError> {
        let connection = ServerConnection::new(self.rustls_config());
        connection.map(Session::server).map_err(|error| TlsError::from_rustls(&error, Side::Server))
    }

    /// The current configuration, for sessions that another crate runs.
    pub fn rustls_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.current().config)
    }

    /// Reason for the end of a session that another crate runs.
    pub fn explain(error: &rustls::Error) -> TlsError {
        TlsError::from_rustls(error, Side::Server)
    }

    /// The files of the certificates, each with the first expiry in its chain; none: it can't be
    /// read from the certificate.
    pub fn expiries(&self) -> Vec<(PathBuf, Option<SystemTime>)> {
        let files = self.setup.certificates.iter().map(|(cert, _)| cert.clone());
        let loaded = self.config.current();
        files.zip(loaded.validities.iter().map(|validity| validity.map(|validity| validity.until))).collect()
    }

    /// Whether clients need a certificate.
    pub fn requires_client_cert(&self) -> bool {
        matches!(self.setup.clients, ClientAuthentication::Required(_))
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

    /// Number of reloads.
    pub fn reloads(&self) -> u64 {
        self.config.reloads()
    }

    /// Error of the newest files, if they are unusable.
    pub fn last_error(&self) -> Option<String> {
        self.config.last_error()
    }

    /// Takes the messages about changed files since the last call. Once a day they warn of
    /// certificates that are not valid or expire soon.
    pub fn take_messages(&self) -> Vec<String> {
        let mut messages = self.config.take_messages();
        messages.extend(self.expiring(SystemTime::now()));
        messages
    }

    fn expiring(&self, now: SystemTime) -> Vec<String> {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_some_and(|last| now.duration_since(last).unwrap_or_default() < WARN_INTERVAL) {
            return Vec::new();
        }
        let loaded = self.config.current();
        let certificates = self.setup.certificates.iter().zip(&loaded.validities);
        let warnings: Vec<String> =
            certificates.filter_map(|((cert, _), validity)| validity.as_ref()?.warning(cert, now)).collect();
        if !warnings.is_empty() {
            *warned = Some(now);
        }
        warnings
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// Loads the files; given a time, refuses certificates that are not valid then.
fn load(setup: &ServerSetup, now: Option<SystemTime>) -> Result<Loaded, LoadError> {
    let provider = Arc::new(ring::default_provider());
    let (mut keys, mut validities) = (Vec::new(), Vec::new());
    for (cert, key) in &setup.certificates {
        let (chain, validity) = files::chain(cert, now)?;
        validities.push(validity);
        let own = CertifiedKey::from_der(chain, files::key(key)?, &provider);
        keys.push(Arc::new(own.map_err(|error| files::unusable(cert, key, &error))?));
    }
    let Some((cert, key)) = setup.certificates.first() else {
        return Err(LoadError::Missing { path: PathBuf::new(), wanted: "certificate" });
    };
    let unusable = |error: &rustls::Error| files::unusable(cert, key, error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unusable(&error))?;
    let builder = match setup.clients.authorities() {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(files::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let is_required = matches!(setup.clients, ClientAuthentication::Required(_));
            let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() }.build();
            let unusable_ca = |error| LoadError::Unusable { path: path.clone(), reason: format!("{error}") };
            builder.with_client_cert_verifier(verifier.map_err(unusable_ca)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(Certificates(keys)));
    config.alpn_protocols.clone_from(&setup.protocols);
    // A reader of the network could replay early data, which is sent before the handshake's end.
    config.max_early_data_size = 0;
    if setup.clients == ClientAuthentication::None {
        // Returning clients resume their session at a part of the cost. Tickets cost the server no
        // memory.
        config.ticketer = ring::Ticketer::new().map_err(|error| unusable(&error))?;
    } else {
        // No resumption: each connection verifies the client's certificate, which a resumed session
        // could outlive.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Loaded { config: Arc::new(config), validities })
}
