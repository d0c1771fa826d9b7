//! Admin port of a server: `--admin`. Does not contain its responses (`leeward-admin`).

use std::net::TcpListener;

use anyhow::{Context, anyhow};
use leeward_admin::{Admin, Sources};
use leeward_observe::with_host;
use leeward_rpc::server::Server;
use leeward_rpc::tls::ServerTls;
use leeward_services::backend::Port;

use crate::failure::Failure;
use crate::stdout;

/// Name of the server, beside the name of a second port.
const SERVER: &str = "rpc";

/// Listening socket of the admin port, before the server exists.
pub(super) struct AdminListener(TcpListener);

impl AdminListener {
    /// Uses a socket that listens already.
    pub(super) fn from_listener(listener: TcpListener) -> Self {
        AdminListener(listener)
    }

    /// Listens without accepting yet.
    pub(super) fn bind(address: &str) -> Result<Self, Failure> {
        let refused =
            |error| Failure::Input(anyhow!("--admin: can't listen on {}: {error}", stdout::sanitize(address)));
        TcpListener::bind(&*with_host(address)).map(AdminListener).map_err(refused)
    }

    /// Serves the state of `sources` from now on. `config` has the settings in the syntax of a
    /// configuration file.
    pub(super) fn start(self, sources: Sources, config: String, tls: Option<ServerTls>) -> Result<Admin, Failure> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let started = match tls {
            Some(tls) => Admin::start_encrypted(self.0, sources, config, tls),
            None => Admin::start_on(self.0, sources, config),
        };
        let admin = started.context("the admin port").map_err(Failure::Runtime)?;
        stdout::print(&format!("admin: {scheme}://{}/", admin.address()))?;
        Ok(admin)
    }
}

/// The server and its second port as sources.
pub(super) fn sources(server: &Server, port: Option<&dyn Port>) -> Sources {
    let sources = Sources::default();
    if let Some(source) = server.source() {
        sources.insert(SERVER, source);
    }
    if let Some((name, source)) = port.and_then(|port| Some((port.name(), port.source()?))) {
        sources.insert(name, source);
    }
    sources
}
