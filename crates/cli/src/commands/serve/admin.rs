//! The port for operators beside a server: `--admin`. Never here: what it answers (`leeward-admin`).

use std::net::TcpListener;

use anyhow::{Context, anyhow};
use leeward_admin::{Admin, Sources};
use leeward_rpc::server::Server;
use leeward_services::served::Port;

use crate::failure::Failure;
use crate::stdout;

/// Name of the server beside which a second port may stand.
const SERVER: &str = "rpc";

/// The port's socket, before there is a server to tell of.
pub(super) struct AdminDesk(TcpListener);

impl AdminDesk {
    /// The desk on a socket that listens already.
    pub(super) fn on(listener: TcpListener) -> Self {
        AdminDesk(listener)
    }

    /// Listens, and answers nobody yet.
    pub(super) fn open(address: &str) -> Result<Self, Failure> {
        let refused = |error| Failure::Input(anyhow!("--admin: can't listen on {}: {error}", stdout::plain(address)));
        TcpListener::bind(address).map(AdminDesk).map_err(refused)
    }

    /// Tells of the server and of its second port from now on. `config` is the settings as a file would say them.
    pub(super) fn start(self, server: &Server, port: Option<&dyn Port>, config: String) -> Result<Admin, Failure> {
        let sources = Sources::default();
        if let Some(source) = server.source() {
            sources.put(SERVER, source);
        }
        if let Some((name, source)) = port.and_then(|port| Some((port.name(), port.source()?))) {
            sources.put(name, source);
        }
        let admin = Admin::start_on(self.0, sources, config).context("the admin port").map_err(Failure::Runtime)?;
        stdout::print(&format!("admin: http://{}/", admin.address()))?;
        Ok(admin)
    }
}
