//! Identity of a client: the name in its certificate.

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use std::fmt::{self, Display, Formatter};
use webpki::EndEntityCert;

/// Longest name that is taken from a certificate, in bytes: names appear in logs and tables.
const LONGEST: usize = 1_024;

/// Identity of a peer whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The first URI among the alternative names, such as a SPIFFE id.
    Uri(String),
    /// Without a URI, the first DNS name.
    Dns(String),
    /// Without either, the SHA-256 of the certificate, in hexadecimal.
    Fingerprint(String),
}

impl Identity {
    /// Identity in a certificate. Names with odd characters are ignored, which leaves the
    /// fingerprint.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Identity {
        if let Ok(parsed) = EndEntityCert::try_from(certificate) {
            if let Some(uri) = parsed.valid_uri_names().find(|name| is_plain(name)) {
                return Identity::Uri(uri.into());
            }
            if let Some(name) = parsed.valid_dns_names().find(|name| is_plain(name)) {
                return Identity::Dns(name.into());
            }
        }
        let bytes = digest(&SHA256, certificate);
        Identity::Fingerprint(bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The name without its prefix.
    pub fn name(&self) -> &str {
        match self {
            Identity::Uri(name) | Identity::Dns(name) | Identity::Fingerprint(name) => name,
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST && name.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Display for Identity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Uri(uri) => write!(f, "{uri}"),
            Identity::Dns(name) => write!(f, "dns:{name}"),
            Identity::Fingerprint(hex) => write!(f, "sha256:{hex}"),
        }
    }
}
