//! Self-signed certificates that take turns in the same two files, and clients that trust all of
//! them. Does not contain requests.

use crate::process::find;
use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Certificates that take turns.
const COUNT: u64 = 8;

/// Certificates in a folder of their own.
pub(crate) struct Certificates {
    folder: PathBuf,
    all: Vec<CertificateDer<'static>>,
    /// For clients that resume their sessions.
    config: Arc<ClientConfig>,
    /// For clients that must be shown the certificate.
    without_sessions: Arc<ClientConfig>,
}

impl Certificates {
    /// Makes them; none where `openssl` is not installed.
    pub(crate) fn make(folder: PathBuf) -> Result<Option<Self>> {
        let Some(openssl) = find("openssl") else { return Ok(None) };
        fs::create_dir_all(&folder)?;
        let (mut all, mut roots) = (Vec::new(), RootCertStore::empty());
        for number in 0..COUNT {
            let certificate = sign(&openssl, &folder, number)?;
            roots.add(certificate.clone())?;
            all.push(certificate);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut without_sessions = config.clone();
        without_sessions.resumption = Resumption::disabled();
        let (config, without_sessions) = (Arc::new(config), Arc::new(without_sessions));
        let certificates = Certificates { folder, all, config, without_sessions };
        certificates.change(0)?;
        Ok(Some(certificates))
    }

    /// The settings that name the two files.
    pub(crate) fn section(&self) -> String {
        let [certificate, key] = ["pem", "key"].map(|end| self.folder.join(format!("now.{end}")));
        format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n")
    }

    /// Replaces both files, one after the other.
    pub(crate) fn change(&self, number: u64) -> Result<()> {
        for end in ["pem", "key"] {
            let new = self.folder.join("new");
            fs::copy(self.folder.join(format!("{}.{end}", number % COUNT)), &new)?;
            fs::rename(new, self.folder.join(format!("now.{end}")))?;
        }
        Ok(())
    }

    /// A session over a connection.
    pub(crate) fn session(&self, stream: TcpStream) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        Ok(StreamOwned::new(client(&self.config)?, stream))
    }

    /// Whether this certificate is shown over a new connection.
    pub(crate) fn is_shown(&self, number: u64, mut stream: TcpStream) -> Result<bool> {
        let mut session = client(&self.without_sessions)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        Ok(shown == self.all.get((number % COUNT) as usize))
    }
}

fn client(config: &Arc<ClientConfig>) -> Result<ClientConnection> {
    let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    Ok(ClientConnection::new(Arc::clone(config), name)?)
}

/// Signs a certificate with its own key. Each has a name of its own, so that a client that trusts
/// several finds its key.
fn sign(openssl: &str, folder: &Path, number: u64) -> Result<CertificateDer<'static>> {
    let file = |end: &str| folder.join(format!("{number}.{end}"));
    let output = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args(["-subj", &format!("/CN=leeward-{number}"), "-addext", "subjectAltName=IP:127.0.0.1"])
        // One that may sign others is no server's.
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(file("key"))
        .arg("-out")
        .arg(file("pem"))
        .output()
        .context("openssl")?;
    anyhow::ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
    CertificateDer::from_pem_file(file("pem")).context("a certificate of openssl")
}
