//! No admission control: everything is sent, everything is queued. The connection's back-pressure is the only bound.
//! What every other algorithm is compared with.

use super::client_params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use super::shared::{SendAll, uncontrolled_server};
use crate::client::ClientParts;
use crate::params::ParamSpec;
use crate::registry::Algorithm;
use crate::units::Nanos;

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "none",
    summary: "no admission control: unbounded queues behind connection back-pressure",
    source: "the baseline of Breakwater §5.2, Fig. 9",
    params: &[CLIENT_QUEUE, ParamSpec { default: "none", ..CLIENT_DELAY }, MAX_OUTSTANDING],
    build_server: |_, environment| Ok(uncontrolled_server(environment.cores)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};
