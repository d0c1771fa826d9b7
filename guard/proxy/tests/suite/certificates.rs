//! Certificates for tests, clients over TLS, and TLS in front of backends. Does not contain tests.

use crate::harness::{Wire, address};
use leeward_proxy::Proxy;
use leeward_testkit::wait::LIVENESS;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, date_time_ymd};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Files of an authority, and of certificates that it signs.
pub(crate) struct Certificates {
    folder: TempDir,
    authority: Authority,
}

/// A certificate to be.
pub(crate) struct Certificate<'a> {
    pub(crate) file: &'a str,
    /// Host names, or an address.
    pub(crate) names: &'a [&'a str],
    /// Year of its expiry.
    pub(crate) expires: i32,
}

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Certificates {
    /// An authority; `server`, for localhost and 127.0.0.1; `client`; `old`, which has expired;
    /// `other`, for `other.example` and `*.wild.example`.
    pub(crate) fn new() -> Self {
        let certificates = Certificates { folder: TempDir::new().unwrap(), authority: authority() };
        certificates.write("ca.pem", &certificates.authority.pem());
        let server = ["localhost", "127.0.0.1"];
        for (file, names, expires) in [
            ("server", &server[..], 4096),
            ("client", &["client.example"][..], 4096),
            ("old", &server[..], 2000),
            ("other", &["other.example", "*.wild.example"][..], 4096),
        ] {
            certificates.sign(&Certificate { file, names, expires });
        }
        certificates
    }

    /// Signs a certificate, and replaces its files.
    pub(crate) fn sign(&self, certificate: &Certificate<'_>) {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        let name = |name: &&str| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        };
        params.subject_alt_names = certificate.names.iter().map(name).collect();
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(certificate.expires, 1, 1);
        let signed = params.signed_by(&key, &self.authority).unwrap();
        // Files change at different times; a pair that does not match is never used.
        self.write(&format!("{}.pem", certificate.file), &signed.pem());
        self.write(&format!("{}.key", certificate.file), &key.serialize_pem());
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        // As programs that renew certificates do it.
        let new = self.path(&format!("{file}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(file)).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The path of a file as a value of a settings file.
    pub(crate) fn value(&self, file: &str) -> String {
        format!("\"{}\"", self.path(file).display())
    }

    /// Section `[tls]` with one certificate, and more lines.
    pub(crate) fn section(&self, of: &str, extra: &str) -> String {
        let (certificate, key) = (self.value(&format!("{of}.pem")), self.value(&format!("{of}.key")));
        format!("[tls]\ncertificate = {certificate}\nkey = {key}\n{extra}\n")
    }

    fn identity(&self, of: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_file(self.path(&format!("{of}.pem"))).unwrap();
        (vec![certificate], PrivateKeyDer::from_pem_file(self.path(&format!("{of}.key"))).unwrap())
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Client { config, name: "localhost".into() }
    }

    /// A client with a certificate.
    pub(crate) fn client_with(&self, of: &str) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let (chain, key) = self.identity(of);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        Client { config, name: "localhost".into() }
    }

    /// TLS in front of a backend of HTTP/1.1: its port. `needs_certificate`: of this authority.
    pub(crate) fn in_front_of(&self, backend: SocketAddr, of: &str, needs_certificate: bool) -> SocketAddr {
        self.in_front_of_protocol(b"http/1.1", backend, of, needs_certificate)
    }

    /// The same for a backend of `protocol`.
    pub(crate) fn in_front_of_protocol(
        &self,
        protocol: &'static [u8],
        backend: SocketAddr,
        of: &str,
        needs_certificate: bool,
    ) -> SocketAddr {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if needs_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let (chain, key) = self.identity(of);
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap();
        run(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(stream).await else { return };
                    assert_eq!(client.get_ref().1.alpn_protocol(), Some(protocol));
                    let Ok(mut server) = tokio::net::TcpStream::connect(backend).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        port
    }
}

/// Runs a future on a thread of its own.
fn run(future: impl Future<Output = ()> + Send + 'static) {
    thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
    });
}

/// A client that speaks TLS.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) config: ClientConfig,
    /// Name that it asks for.
    pub(crate) name: String,
}

/// What a handshake has shown.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) is_resumed: bool,
    pub(crate) version: ProtocolVersion,
}

impl Client {
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    pub(crate) fn with_protocols(mut self, protocols: &[&str]) -> Self {
        self.config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Connects; the error is that of the handshake. An error that the server finds in a client's
    /// certificate comes with the first bytes that are read.
    pub(crate) fn connect(&self, proxy: &Proxy) -> io::Result<(Wire, Greeting)> {
        self.connect_after(proxy, b"")
    }

    /// Connects, and sends bytes before the handshake.
    pub(crate) fn connect_after(&self, proxy: &Proxy, first: &'static [u8]) -> io::Result<(Wire, Greeting)> {
        let (port, name) = (address(proxy), ServerName::try_from(self.name.clone()).unwrap());
        let connector = TlsConnector::from(Arc::new(self.config.clone()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire::to(listener.local_addr().unwrap());
        let (local, _) = listener.accept().unwrap();
        local.set_nonblocking(true).unwrap();
        run(async move {
            let mut local = tokio::net::TcpStream::from_std(local).unwrap();
            let mut stream = tokio::net::TcpStream::connect(port).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, first).await.unwrap();
            match connector.connect(name, stream).await {
                Err(error) => sender.send(Err(error)).unwrap(),
                Ok(mut stream) => {
                    let session = stream.get_ref().1;
                    let greeting = Greeting {
                        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
                        certificate: session.peer_certificates().unwrap()[0].clone().into_owned(),
                        is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
                        version: session.protocol_version().unwrap(),
                    };
                    sender.send(Ok(greeting)).unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut local, &mut stream).await;
                }
            }
        });
        let greeting = receiver.recv_timeout(LIVENESS).expect("an end of the handshake")?;
        Ok((wire, greeting))
    }

    /// A port whose connections lead to the proxy over TLS.
    pub(crate) fn port_to(&self, proxy: &Proxy) -> SocketAddr {
        let (port, name) = (address(proxy), ServerName::try_from(self.name.clone()).unwrap());
        let connector = TlsConnector::from(Arc::new(self.config.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        run(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (connector, name) = (connector.clone(), name.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tokio::net::TcpStream::connect(port).await else { return };
                    let Ok(mut server) = connector.connect(name, stream).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        local
    }

    /// Asks for a path on a new connection.
    pub(crate) fn get(&self, proxy: &Proxy, path: &str) -> String {
        self.connect(proxy).expect("a handshake").0.get(path).text()
    }
}

/// A value of the metrics about transports; 0: it is not there.
pub(crate) fn transport_metric(proxy: &Proxy, name: &str) -> u64 {
    let text = proxy.transport().metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("leeward_proxy_{name} ")));
    value.map_or(0, |value| value.parse().unwrap())
}

/// The number of handshakes with clients that ended so.
pub(crate) fn handshakes(proxy: &Proxy, result: &str) -> u64 {
    transport_metric(proxy, &format!("tls_handshakes_total{{result=\"{result}\"}}"))
}
