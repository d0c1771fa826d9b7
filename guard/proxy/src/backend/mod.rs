//! Backends: their addresses, the connections to them, and whether they are reachable. Does not
//! contain requests or limits.

pub(crate) mod address;
pub(crate) mod connector;
pub(crate) mod health;
pub(crate) mod http2;
pub(crate) mod pool;
pub(crate) mod report;
mod stream;
