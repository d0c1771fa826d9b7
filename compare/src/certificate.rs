//! The certificate of the servers that speak TLS, made for one run, and the authority that clients trust.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// The authority's certificate.
pub(crate) const CA: &str = "ca.pem";
/// The server's, and its key.
pub(crate) const CERT: &str = "server.pem";
pub(crate) const KEY: &str = "server.key";

/// Files in a folder of this process. They go when this is dropped.
pub(crate) struct Certificate(PathBuf);

impl Certificate {
    /// An authority, and a server's certificate with a key on P-256, which makes the cheapest handshakes.
    ///
    /// # Errors
    /// The files can't be written.
    pub(crate) fn make() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("leeward-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let server = CertificateParams::new(vec!["localhost".into()])?.signed_by(&key, &authority)?;
        for (name, text) in [(CA, authority.pem()), (CERT, server.pem()), (KEY, key.serialize_pem())] {
            std::fs::write(folder.join(name), text).context("writing a certificate")?;
        }
        Ok(Certificate(folder))
    }

    /// Where the files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
