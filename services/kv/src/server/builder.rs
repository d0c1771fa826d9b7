//! Starts a memcached port.

use super::protocol::Memcached;
use crate::protocol::Executor;
use crate::store::Store;
use leeward_core::units::Nanos;
use leeward_engine::{Config, Handle, Limits, ServerError};
use leeward_host::RequestCounts;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Settings of a memcached port that is not started yet.
#[derive(Clone, Debug)]
pub struct Builder {
    port: Config,
}

/// A running memcached port. Dropping it does not stop it: see [`Server::stop`].
pub struct Server(leeward_engine::Server);

/// Returns the seconds since 1970.
pub(crate) fn unix_seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().try_into().unwrap_or(u32::MAX))
}

impl Server {
    /// Creates a builder with the defaults; every part can be set.
    ///
    /// Defaults: one spinning core, no admission control, the papers' objective, requests without a
    /// budget, and no idle timeout, because clients keep connections.
    pub fn builder() -> Builder {
        let mut port = Config::default();
        port.limits.connections = 1024;
        Builder { port }.timeouts(None, Nanos::from_secs(60), Nanos::from_secs(10))
    }

    /// Stops accepting connections and requests, sends the pending answers, and ends.
    ///
    /// Returns the counts of all requests.
    ///
    /// # Errors
    /// The error with which a core ended early.
    pub fn stop(self) -> io::Result<RequestCounts> {
        self.0.stop()
    }
}

impl Deref for Server {
    type Target = leeward_engine::Server;

    fn deref(&self) -> &leeward_engine::Server {
        &self.0
    }
}

impl Builder {
    leeward_engine::server_settings!();

    /// Copies the settings of another server: controller, cores, allocator, budget, io_uring,
    /// recording, connections.
    ///
    /// The timeouts for memcached clients stay: see [`Builder::timeouts`].
    #[must_use]
    pub fn with_config(self, config: &Config) -> Self {
        let Limits { idle_timeout: idle, request_timeout: request, write_timeout: write, .. } = self.port.limits;
        let limits = Limits { idle_timeout: idle, request_timeout: request, write_timeout: write, ..config.limits };
        Builder { port: Config { limits, event_sources: self.port.event_sources, ..config.clone() } }
    }

    /// Sets the timeouts of connections.
    ///
    /// - `silence`: longest idle time; `None` for no limit, because clients keep connections.
    /// - `part`: longest time to receive one request.
    /// - `stuck`: longest time in which a peer reads nothing of its pending answers.
    #[must_use]
    pub fn timeouts(mut self, silence: Option<Nanos>, part: Nanos, stuck: Nanos) -> Self {
        let limits = &mut self.port.limits;
        (limits.idle_timeout, limits.request_timeout, limits.write_timeout) = (silence, part, stuck);
        self
    }

    /// Listens on `address` and starts the cores, serving `store`.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(self, address: &str, store: &Arc<Store>) -> Result<Server, ServerError> {
        let most = self.port.limits.connections;
        let server = self.port.start(address, |handle| Memcached::new(executor(store, handle, most)))?;
        Ok(Server(server))
    }
}

/// Creates an executor that shows the port's counters beside the store's.
fn executor(store: &Arc<Store>, handle: &Handle<Memcached>, most: usize) -> Executor {
    let (for_lines, for_json) = (handle.clone(), handle.clone());
    let lines = move |line: &mut dyn FnMut(&dyn std::fmt::Display, &dyn std::fmt::Display)| {
        let counts = for_lines.counts();
        line(&"max_connections", &most);
        line(&"curr_connections", &counts.connections);
        line(&"total_connections", &counts.accepted);
        // The port never stops listening.
        line(&"accepting_conns", &1);
        line(&"listen_disabled_num", &0);
        line(&"bytes_read", &counts.bytes_read);
        line(&"bytes_written", &counts.bytes_written);
        line(&"busy_by_admission", &(counts.rejected - counts.rejected_by_lock.min(counts.rejected)));
        line(&"busy_by_lock", &counts.rejected_by_lock);
        line(&"queueing_delay_ns", &for_lines.delay().0);
    };
    let statistics = move || for_json.statistics().to_json();
    Executor::new(Arc::clone(store), unix_seconds()).with_stats(lines).with_statistics(statistics)
}
