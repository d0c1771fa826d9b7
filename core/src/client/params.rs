//! Parameters that the clients of all algorithms have in common: the queue's length and its expiry.

use crate::client::ClientConfig;
use crate::params::{ParamKind, ParamSpec, Params};
use crate::units::Nanos;

/// `client_queue`.
pub const CLIENT_QUEUE: ParamSpec = ParamSpec {
    name: "client_queue",
    kind: ParamKind::Count { min: 1, max: 65_536 },
    default: "16",
    doc: "requests that may wait at a client; the oldest is dropped for one more",
    tuning_values: &[],
};

/// `client_delay`.
pub const CLIENT_DELAY: ParamSpec = ParamSpec {
    name: "client_delay",
    kind: ParamKind::ANY_DURATION,
    default: "the SLO",
    doc: "a request that has waited this long at the client expires",
    tuning_values: &[],
};

/// `max_outstanding`.
pub const MAX_OUTSTANDING: ParamSpec = ParamSpec {
    name: "max_outstanding",
    kind: ParamKind::Count { min: 1, max: 1_000_000 },
    default: "256",
    doc: "unanswered requests per client, whatever the controller allows: the connection's back-pressure",
    tuning_values: &[],
};

/// Reads the three parameters; `max_delay` is the algorithm's default for `client_delay`.
pub fn client_config(params: &Params, max_delay: Nanos) -> ClientConfig {
    let default = ClientConfig::default();
    ClientConfig {
        queue: params.count(CLIENT_QUEUE.name, default.queue as u64) as usize,
        max_delay: params.duration(CLIENT_DELAY.name, max_delay),
        max_outstanding: params.count(MAX_OUTSTANDING.name, default.max_outstanding.into()) as u32,
    }
}
