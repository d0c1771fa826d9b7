//! How connections began: handshakes of TLS and headers of the PROXY protocol, by result. Does not
//! contain requests.

use leeward_host::sync::{Mutex, lock};
use std::collections::BTreeMap;

/// Result of what has succeeded.
pub(crate) const OK: &str = "ok";

/// A counter by result.
#[derive(Debug, Default)]
pub(crate) struct Results(Mutex<BTreeMap<&'static str, u64>>);

impl Results {
    /// Counts one.
    pub(crate) fn record(&self, result: &'static str) {
        *lock(&self.0).entry(result).or_default() += 1;
    }

    /// All results that there were, and the one of success.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, u64> {
        let mut all = lock(&self.0).clone();
        all.entry(OK).or_default();
        all
    }
}

/// Results of what comes before HTTP.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Handshakes with clients.
    pub(crate) clients: Results,
    /// Handshakes with backends.
    pub(crate) backends: Results,
    /// Headers of the PROXY protocol.
    pub(crate) proxy_protocol: Results,
}
