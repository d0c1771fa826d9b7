//! A minimal HTTP/1 protocol on the engine of `leeward-port`: GET of one route under admission control, `/healthz` and
//! `/statistics` always. It shows what a protocol costs to write, and serves whoever has only `curl`.
//!
//! Never here: bodies of requests, other methods, TLS, HTTP/2.
//!
//! ```no_run
//! use leeward_http::Http;
//!
//! let server = Http::builder().start("127.0.0.1:8080", "/hello", |query| format!("hello {query}"))?;
//! println!("http://{}/hello?you", server.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod protocol;

use leeward_port::{Config, Server, ServerError};
use protocol::Protocol;
use std::sync::Arc;

/// A server of one route.
#[derive(Clone, Debug)]
pub struct Http {
    port: Config,
}

impl Http {
    /// One core that spins, no admission control, the papers' objective; every part can be set.
    pub fn builder() -> Self {
        Http { port: Config::default() }
    }

    leeward_port::server_settings!();

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
        self.port.start(address, |handle| Protocol::new(handle.clone(), Arc::clone(&route), Arc::clone(&handler)))
    }
}
