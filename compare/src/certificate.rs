//! The certificate of the TLS servers, made for one run, and the authority that clients trust.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// File name of the authority's certificate.
pub(crate) const CA: &str = "ca.pem";
/// File names of the server's certificate and key.
pub(crate) const CERT: &str = "server.pem";
pub(crate) const KEY: &str = "server.key";

/// Certificate files in a folder of this process; dropping this removes them.
pub(crate) struct Certificate(PathBuf);

impl Certificate {
    /// Makes an authority, and a server's certificate with a P-256 key (the cheapest handshakes).
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

    /// Folder with the files.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
