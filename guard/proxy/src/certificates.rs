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
        let server = open_server(settings)?;
        let opened = Certificates {
            settings: (settings.tls.clone(), settings.backend_tls.clone()),
            is_shared: settings.sends_proxy_protocol.is_none(),
            server,
            client: open_client(settings)?,
        };
        Ok(opened)
    }

    /// Those of new settings. Where the settings are the same, so are sessions and counts, and the
    /// files are read again. Both sides are tried before one of them changes.
    ///
    /// # Errors
    /// As for [`Certificates::open`], and [`ProxyError::BothCertificates`]; nothing has changed.
    pub(crate) fn renew(&self, settings: &Settings) -> Result<Self, ProxyError> {
        let is_shared = settings.sends_proxy_protocol.is_none();
        let (of_server, of_client) = &self.settings;
        let is_same = settings.backend_tls == *of_client && is_shared == self.is_shared;
        let kept_client = self.client.as_ref().filter(|_| is_same);
        // One that is kept has the error in its metrics.
        let kept_server = self.server.as_ref().filter(|_| settings.tls == *of_server);
        let client = match kept_client {
            Some(kept) => try_client(settings).map(|()| self.client.clone()).inspect_err(|_| drop(kept.reload())),
            None => open_client(settings),
        };
        let server = open_server(settings).and_then(|opened| match (kept_server, opened) {
            // As a reload will check them.
            (Some(kept), Some(tried)) => tried.reload().map(|()| Some(kept.clone())).map_err(failed("tls")),
            (_, opened) => Ok(opened),
        });
        let server = server.inspect_err(|_| drop(kept_server.map(ServerTls::reload)));
        let (server, client) = match (server, client) {
            (Ok(server), Ok(client)) => (server, client),
            (Err(server), Err(client)) => {
                return Err(ProxyError::BothCertificates { server: Box::new(server), client: Box::new(client) });
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        kept_server.map_or(Ok(()), ServerTls::reload).map_err(failed("tls"))?;
        kept_client.map_or(Ok(()), ClientTls::reload).map_err(failed("backend-tls"))?;
        Ok(Certificates { settings: (settings.tls.clone(), settings.backend_tls.clone()), is_shared, server, client })
    }
}

fn open_server(settings: &Settings) -> Result<Option<ServerTls>, ProxyError> {
    settings.tls.as_ref().map(accept::open_certificates).transpose().map_err(failed("tls"))
}

/// Checks files for backends as a reload will.
fn try_client(settings: &Settings) -> Result<(), ProxyError> {
    let tried = connector::open_certificates(settings);
    tried.and_then(|tried| tried.as_ref().map_or(Ok(()), ClientTls::reload)).map_err(failed("backend-tls"))
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
