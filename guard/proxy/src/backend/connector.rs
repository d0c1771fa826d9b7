//! Opens connections to backends: TCP or a Unix socket, the PROXY protocol, TLS. Does not contain
//! HTTP, or connections that wait for requests.

use super::address::{BackendAddress, Target};
use crate::settings::Settings;
use crate::transport::counts::{Counts, OK};
use crate::transport::messages::tell;
use crate::transport::proxy_protocol::Route;
use crate::transport::proxy_protocol::encode::{Version, encode};
use crate::transport::socket::Socket;
use crate::transport::stream::{Protocol, Transport};
use leeward_host::sync::{Mutex, lock};
use leeward_tls::{Authorities, ClientSetup, ClientTls, LoadError, TlsErrorReason, is_server_name};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::rustls::{self, RootCertStore};
use tokio_rustls::{TlsConnector, TlsStream};

/// Shortest time between two messages about handshakes that fail.
const QUIET: Duration = Duration::from_secs(60);

/// Opens connections to backends. Clones share the certificates.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    timeout: Duration,
    proxy_protocol: Option<Version>,
    tls: Option<ClientTls>,
    counts: Arc<Counts>,
    /// Time of the last message about a handshake that failed.
    last_message: Arc<Mutex<Option<Instant>>>,
}

/// A connection that is open.
pub(crate) struct Opened {
    pub(crate) transport: Transport,
    /// Time in which the backend's machine has accepted it, without the look-up of its name.
    pub(crate) round_trip: Duration,
}

/// Opens the certificates for backends, if one of these speaks TLS.
///
/// # Errors
/// Unusable files, no authorities, or an address that is no name of a server.
pub(crate) fn open_certificates(of: &Settings) -> Result<Option<ClientTls>, LoadError> {
    let (settings, backends) = (&of.backend_tls, &of.backends);
    let mut hosts = backends.iter().filter(|backend| backend.is_tls()).filter_map(BackendAddress::host).peekable();
    if hosts.peek().is_none() {
        return Ok(None);
    }
    if let (Some(host), None) = (hosts.find(|host| !is_server_name(host)), &settings.server_name) {
        return Err(LoadError::Name { name: host.into() });
    }
    let authorities = match &settings.ca {
        _ if settings.is_insecure => Authorities::Unverified,
        Some(path) => Authorities::File(path.clone()),
        None => Authorities::Roots(Arc::new(system_roots()?)),
    };
    // A connection that tells one client serves it alone, and one request at a time.
    let is_shared = of.sends_proxy_protocol.is_none();
    let offered = Protocol::OFFERED_TO_BACKENDS.iter().filter(|protocol| is_shared || **protocol == Protocol::Http1);
    let protocols = offered.map(|protocol| protocol.name().to_vec()).collect();
    let (identity, name) = (settings.identity.clone(), settings.server_name.clone());
    ClientTls::open_setup(ClientSetup { authorities, identity, name, protocols }).map(Some)
}

/// The authorities that this system trusts.
fn system_roots() -> Result<RootCertStore, LoadError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let path = PathBuf::from("the system's authorities");
        let reason = found
            .errors
            .first()
            .map_or("there are none; `backend-tls.ca` names a file".into(), |error| error.to_string());
        return Err(LoadError::Unusable { path, reason });
    }
    Ok(roots)
}

/// Connects to the first address of a target that accepts; returns the time that this took.
async fn open_socket(target: &Target) -> io::Result<(Socket, Duration)> {
    let (host, port) = match target {
        Target::Tcp { host, port } => (host.as_str(), *port),
        Target::Unix(path) => {
            let begun = Instant::now();
            let socket = UnixStream::connect(path).await?.into();
            return Ok((socket, begun.elapsed()));
        }
    };
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host((host, port)).await? {
        let begun = Instant::now();
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok((stream.into(), begun.elapsed())),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Connector {
    pub(crate) fn new(settings: &Settings, tls: Option<ClientTls>, counts: Arc<Counts>) -> Self {
        let (timeout, proxy_protocol) = (settings.timeouts.connect, settings.sends_proxy_protocol);
        Connector { timeout, proxy_protocol, tls, counts, last_message: Arc::default() }
    }

    /// Whether a connection begins with its client's address, so that it serves no other client.
    pub(crate) fn tells_clients(&self) -> bool {
        self.proxy_protocol.is_some()
    }

    /// Opens a connection, and measures a round trip to the backend; `route`: addresses of its
    /// client's, if the backend is to be told.
    ///
    /// # Errors
    /// The backend refuses connections, does not answer in time, or its certificate is not valid.
    pub(crate) async fn connect(&self, address: &BackendAddress, route: Option<&Route>) -> io::Result<Opened> {
        let connect = self.open(address, route);
        timeout(self.timeout, connect).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn open(&self, address: &BackendAddress, route: Option<&Route>) -> io::Result<Opened> {
        let (mut socket, round_trip) = open_socket(address.target()).await?;
        if let Some(version) = self.proxy_protocol {
            socket.write_all(&encode(version, route.copied())).await?;
        }
        if !address.is_tls() {
            return Ok(Opened { transport: Transport::Plain(socket), round_trip });
        }
        // Without certificates, a backend by TLS is no other backend: it can't be reached.
        let (Some(tls), Some(host)) = (&self.tls, address.host()) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let name = tls.name_for(host).map_err(io::Error::other)?;
        let connector = TlsConnector::from(tls.rustls_config());
        let result = connector.connect(name, socket).await;
        match result {
            Ok(stream) => {
                self.counts.backends.record(OK);
                let transport = Transport::Tls(Box::new(TlsStream::Client(stream)));
                Ok(Opened { transport, round_trip })
            }
            Err(error) => {
                self.report(address, &error);
                Err(error)
            }
        }
    }

    /// Counts a handshake that failed, and says why, now and then.
    fn report(&self, address: &BackendAddress, error: &io::Error) {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let reason = inner.map(|inner| ClientTls::explain(inner).reason);
        self.counts.backends.record(reason.map_or("closed", TlsErrorReason::name));
        let mut last = lock(&self.last_message);
        if last.is_none_or(|last| last.elapsed() >= QUIET) {
            *last = Some(Instant::now());
            let advice = match reason {
                Some(TlsErrorReason::UnknownIssuer) => "; `backend-tls.ca` is the file of authorities",
                Some(TlsErrorReason::WrongName) => "; `backend-tls.server-name` is the expected name",
                Some(TlsErrorReason::RefusedByPeer) => "; `backend-tls.certificate` is for backends that want one",
                _ => "",
            };
            tell(&format_args!("{address}: TLS: {error}{advice}"));
        }
    }
}
