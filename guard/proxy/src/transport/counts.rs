//! How connections began: handshakes of TLS and their ends, by reason. Does not contain requests.

use leeward_host::sync::{Mutex, lock};
use std::collections::BTreeMap;

/// Result of a handshake that both sides have finished.
pub(crate) const OK: &str = "ok";

/// Results of handshakes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    clients: Mutex<BTreeMap<&'static str, u64>>,
    backends: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counts {
    /// Counts a handshake with a client.
    pub(crate) fn record_client(&self, result: &'static str) {
        *lock(&self.clients).entry(result).or_default() += 1;
    }

    /// Counts a handshake with a backend.
    pub(crate) fn record_backend(&self, result: &'static str) {
        *lock(&self.backends).entry(result).or_default() += 1;
    }

    /// Handshakes with clients, by result.
    pub(crate) fn of_clients(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.clients).clone()
    }

    /// Handshakes with backends, by result.
    pub(crate) fn of_backends(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.backends).clone()
    }
}
