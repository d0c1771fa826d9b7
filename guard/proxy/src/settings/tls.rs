//! Sections `[tls]` and `[backend-tls]`: files of certificates, and who needs one. Does not contain
//! what is in the files.

use super::error::{SettingsError, wrong};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// TLS to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Certificate chains and their keys, at least one, in PEM. The client's name for the server
    /// (SNI) chooses; the first one is for clients without such a name.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// Authorities that sign clients' certificates. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is served all the same.
    pub is_client_optional: bool,
}

/// TLS to backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendTlsSettings {
    /// Authorities that sign backends' certificates. `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The proxy's own certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name that a backend's certificate must have. `None`: that in its address.
    pub server_name: Option<String>,
    /// Whether any certificate is accepted, that of an attacker as well.
    pub is_insecure: bool,
}

/// Section `[tls]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsSection {
    /// File of the certificate chain, or a list of them.
    pub certificate: Option<OneOrMore>,
    /// File of the key, or a list in the same order.
    pub key: Option<OneOrMore>,
    /// File of the authorities that sign clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// `required` or `optional`.
    pub client_auth: Option<String>,
}

/// Section `[backend-tls]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BackendTlsSection {
    /// File of the authorities.
    pub ca: Option<PathBuf>,
    /// File of the proxy's own certificate.
    pub certificate: Option<PathBuf>,
    /// File of its key.
    pub key: Option<PathBuf>,
    /// Expected name.
    pub server_name: Option<String>,
    /// Whether certificates are not checked.
    pub insecure: Option<bool>,
}

/// A file, or a list of files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a path, or a list of paths")]
pub enum OneOrMore {
    /// One.
    One(PathBuf),
    /// A list.
    More(Vec<PathBuf>),
}

impl OneOrMore {
    fn paths(&self) -> &[PathBuf] {
        match self {
            OneOrMore::One(path) => std::slice::from_ref(path),
            OneOrMore::More(paths) => paths,
        }
    }
}

impl TlsSection {
    /// Replaces what `over` states.
    pub(super) fn merge(self, over: TlsSection) -> Self {
        TlsSection {
            certificate: over.certificate.or(self.certificate),
            key: over.key.or(self.key),
            client_ca: over.client_ca.or(self.client_ca),
            client_auth: over.client_auth.or(self.client_auth),
        }
    }

    /// Checks the section.
    pub(super) fn settings(&self) -> Result<TlsSettings, SettingsError> {
        let paths = |of: &Option<OneOrMore>| of.as_ref().map(OneOrMore::paths).unwrap_or_default().to_vec();
        let (certificates, keys) = (paths(&self.certificate), paths(&self.key));
        if certificates.is_empty() {
            let help = "a file of certificates in PEM, such as `\"/etc/leeward/cert.pem\"`";
            return Err(SettingsError::Missing { key: "tls.certificate", help });
        }
        if keys.is_empty() {
            let help = "the file of the certificate's private key in PEM";
            return Err(SettingsError::Missing { key: "tls.key", help });
        }
        if keys.len() != certificates.len() {
            let reason = format!("there are {} certificates and {} keys", certificates.len(), keys.len());
            return Err(wrong("tls.key", &reason));
        }
        let is_client_optional = match self.client_auth.as_deref() {
            Some(_) if self.client_ca.is_none() => {
                return Err(wrong("tls.client-auth", &"needs `client-ca`, the authorities that sign certificates"));
            }
            None | Some("required") => false,
            Some("optional") => true,
            Some(_) => return Err(wrong("tls.client-auth", &"must be `required` or `optional`")),
        };
        let certificates = certificates.into_iter().zip(keys).collect();
        Ok(TlsSettings { certificates, client_ca: self.client_ca.clone(), is_client_optional })
    }
}

impl BackendTlsSection {
    /// Replaces what `over` states.
    pub(super) fn merge(self, over: BackendTlsSection) -> Self {
        BackendTlsSection {
            ca: over.ca.or(self.ca),
            certificate: over.certificate.or(self.certificate),
            key: over.key.or(self.key),
            server_name: over.server_name.or(self.server_name),
            insecure: over.insecure.or(self.insecure),
        }
    }

    /// Checks the section.
    pub(super) fn settings(&self) -> Result<BackendTlsSettings, SettingsError> {
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) => {
                return Err(SettingsError::Missing { key: "backend-tls.key", help: "the key of `certificate`" });
            }
            (None, Some(_)) => {
                let help = "the certificate of `key`";
                return Err(SettingsError::Missing { key: "backend-tls.certificate", help });
            }
        };
        let is_insecure = self.insecure.unwrap_or(false);
        if is_insecure && self.ca.is_some() {
            return Err(wrong("backend-tls.insecure", &"`ca` says whom to trust; leave one of them out"));
        }
        if let Some(name) = &self.server_name
            && !leeward_tls::is_server_name(name)
        {
            return Err(wrong("backend-tls.server-name", &"must be a host name or an address"));
        }
        let (ca, server_name) = (self.ca.clone(), self.server_name.clone());
        Ok(BackendTlsSettings { ca, identity, server_name, is_insecure })
    }
}
