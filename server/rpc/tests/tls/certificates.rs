//! Authorities and certificates for tests, as files.

use leeward_rpc::tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// An authority, with a directory for its files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// Paths of a certificate and of its key.
pub(crate) type Pair = (PathBuf, PathBuf);

/// Validity period of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    Now,
    LongAgo,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { issuer, folder: TempDir::new().unwrap() };
        fs::write(authority.ca(), authority.issuer.pem()).unwrap();
        authority
    }

    /// The authority's own certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for these names, as files with the stem `file`.
    pub(crate) fn issue(&self, file: &str, names: Vec<SanType>, valid: Validity) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, file);
        params.subject_alt_names = names;
        if valid == Validity::LongAgo {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let at = |end: &str| self.folder.path().join(format!("{file}.{end}"));
        fs::write(at("pem"), certificate.pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        (at("pem"), at("key"))
    }

    /// Files of a server named `localhost`.
    pub(crate) fn localhost(&self) -> Pair {
        self.issue("localhost", vec![dns("localhost")], Validity::Now)
    }

    /// A server named `localhost`, which requires certificates of `clients` if given.
    pub(crate) fn server(&self, clients: Option<&Authority>) -> ServerTls {
        let (cert, key) = self.localhost();
        ServerTls::open(ServerFiles { cert, key, client_ca: clients.map(Authority::ca) }).unwrap()
    }

    /// A client that trusts this authority and knows the server as `localhost`.
    pub(crate) fn client(&self, identity: Option<Pair>) -> ClientTls {
        ClientTls::open(ClientFiles { ca: self.ca(), identity, name: Some("localhost".into()) }).unwrap()
    }
}

pub(crate) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}
