//! A minimal HTTP/1 protocol on the engine of `leeward-engine`: GET of one route under admission control, `/healthz` and
//! `/statistics` always. It shows what a protocol costs to write, and serves whoever has only `curl`.
//!
//! Never here: bodies of requests, other methods, TLS, HTTP/2.

mod protocol;

use leeward_engine::{Config, Server, ServerError};
use protocol::Protocol;
use std::sync::Arc;

/// A server of one route, to be.
#[derive(Clone, Debug, Default)]
pub struct Http {
    port: Config,
}

impl Http {
    leeward_engine::server_settings!();

    /// Listens on `address` and answers `GET route` with what `handler` makes of the query (the part behind `?`).
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        self,
        address: &str,
        route: &str,
        handler: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Server, ServerError> {
        let (route, handler) = (Arc::<str>::from(route), Arc::new(handler));
        let protocol = |handle: &_| Protocol {
            handle: Clone::clone(handle),
            route: Arc::clone(&route),
            handler: Arc::clone(&handler),
        };
        self.port.start(address, protocol)
    }
}
