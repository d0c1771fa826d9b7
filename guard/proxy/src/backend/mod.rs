//! Backends: their addresses, the connections to them, and whether they are reachable. Does not
//! contain requests or limits.

pub(crate) mod address;
pub(crate) mod connector;
pub(crate) mod health;
pub(crate) mod http2;
pub(crate) mod http2_streams;
pub(crate) mod pool;
pub(crate) mod report;
mod stream;

use std::time::Duration;

/// Longest that a backend has to close a connection after its only request, or to take what is on
/// its way when nobody awaits its answer any more.
const CLOSE_TIME: Duration = Duration::from_secs(1);
