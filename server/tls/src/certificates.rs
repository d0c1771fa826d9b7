//! Certificates of a server, one of which is chosen by the name that a client asks for (SNI). Does
//! not contain files.

use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use webpki::EndEntityCert;

/// Certificates and their keys; the first one is for clients that name no server, or an unknown
/// one.
#[derive(Debug)]
pub(crate) struct Certificates(pub(crate) Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = || {
            let name = ServerName::try_from(client.server_name()?).ok()?;
            self.0.iter().find(|key| is_for(key, &name))
        };
        // A choice takes some microseconds, which one certificate needs not.
        let chosen = if self.0.len() > 1 { named() } else { None };
        chosen.or(self.0.first()).cloned()
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.end_entity_cert().ok().and_then(|certificate| EndEntityCert::try_from(certificate).ok());
    certificate.is_some_and(|certificate| certificate.verify_is_valid_for_subject_name(name).is_ok())
}
