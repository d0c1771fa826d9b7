//! The certificates of both sides: opened at the start, and anew with each reload. Does not contain
//! files, or handshakes.

use crate::backend::connector;
use crate::error::ProxyError;
use crate::settings::Settings;
use crate::settings::tls::{BackendTlsSettings, TlsSettings};
use crate::transport::accept;
use crate::transport::messages::tell;
use leeward_tls::{ClientTls, ServerTls};

/// Certificates, and the settings that name them.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    settings: (Option<TlsSettings>, BackendTlsSettings),
    /// Whether connections to backends are shared by clients, on which the protocols depend.
    is_shared: bool,
    /// For clients.
    pub(crate) server: Option<ServerTls>,
    /// For backends.
    pub(crate) client: Option<ClientTls>,
}

impl Certificates {
    /// Opens those of the settings.
    ///
    /// # Errors
    /// [`ProxyError::Certificates`].
    pub(crate) fn open(settings: &Settings) -> Result<Self, ProxyError> {
        let server = settings.tls.as_ref().map(accept::open_certificates).transpose().map_err(failed("tls"))?;
        let opened = Certificates {
            settings: (settings.tls.clone(), settings.backend_tls.clone()),
            is_shared: settings.sends_proxy_protocol.is_none(),
            server,
            client: open_client(settings)?,
        };
        Ok(opened)
    }

    /// Those of new settings. Where the settings are the same, so are sessions and counts, and the
    /// files are read again.
    ///
    /// # Errors
    /// As for [`Certificates::open`].
    pub(crate) fn renew(&self, settings: &Settings) -> Result<Self, ProxyError> {
        let mut renewed = self.clone();
        match &self.client {
            Some(client)
                if settings.backend_tls == self.settings.1
                    && settings.sends_proxy_protocol.is_none() == self.is_shared =>
            {
                client.reload().map_err(failed("backend-tls"))?;
            }
            _ => renewed.client = open_client(settings)?,
        }
        match &self.server {
            Some(server) if settings.tls == self.settings.0 => server.reload().map_err(failed("tls"))?,
            _ => {
                let server = settings.tls.as_ref().map(accept::open_certificates);
                renewed.server = server.transpose().map_err(failed("tls"))?;
            }
        }
        renewed.is_shared = settings.sends_proxy_protocol.is_none();
        renewed.settings = (settings.tls.clone(), settings.backend_tls.clone());
        Ok(renewed)
    }
}

fn open_client(settings: &Settings) -> Result<Option<ClientTls>, ProxyError> {
    let client = connector::open_certificates(settings);
    let client = client.map_err(failed("backend-tls"))?;
    if client.is_some() && settings.backend_tls.is_insecure {
        tell(&"WARNING: backend-tls.insecure: the certificates of backends are NOT checked");
    }
    Ok(client)
}

fn failed(section: &'static str) -> impl Fn(leeward_tls::LoadError) -> ProxyError {
    move |source| ProxyError::Certificates { section, source }
}
