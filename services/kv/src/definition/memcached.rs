//! The key-value service's second port, for memcached's clients, as the catalogue's servers open
//! it.

use crate::server::Server;
use crate::store::Store;
use leeward_engine::{Config, ServerError, Source};
use leeward_services::backend::{Port, PortCounts};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The protocol's name.
pub(super) const NAME: &str = "memcached";

/// Opens the port at `address`, with the settings of the first server.
pub(super) fn open(address: &str, store: &Arc<Store>, config: &Config) -> Result<Box<dyn Port>, ServerError> {
    Ok(Box::new(Memcached(Server::builder().with_config(config).start(address, store)?)))
}

struct Memcached(Server);

impl Port for Memcached {
    fn name(&self) -> &'static str {
        NAME
    }

    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        self.0.source()
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    fn stop(self: Box<Self>) -> io::Result<PortCounts> {
        let counts = self.0.stop()?;
        Ok(PortCounts { received: counts.received, completed: counts.completed, busy: counts.rejected })
    }
}
