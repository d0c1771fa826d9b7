//! The second port of the key-value service, for memcached's clients, as the catalogue's servers open it.

use crate::server::Server;
use crate::store::Store;
use leeward_rpc::server::ServerError;
use leeward_services::served::{Port, PortCounts, PortSetting};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Opens it at `address`.
pub(super) fn open(address: &str, store: &Arc<Store>, setting: &PortSetting<'_>) -> Result<Box<dyn Port>, ServerError> {
    let builder = Server::builder()
        .budget(setting.budget)
        .admission(setting.algorithm, setting.params.clone())
        .objective(setting.rtt, setting.slo)
        .cores(setting.cores)
        .cpus(setting.cpus.to_vec())
        .idle(setting.idle)
        .connection_limit(setting.connections);
    Ok(Box::new(Memcached(builder.start(address, store)?)))
}

struct Memcached(Server);

impl Port for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    fn stop(self: Box<Self>) -> io::Result<PortCounts> {
        let counts = self.0.stop()?;
        Ok(PortCounts { received: counts.received, completed: counts.completed, busy: counts.dropped })
    }
}
