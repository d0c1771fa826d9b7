//! Stand-in while the crate is being put together.

use super::client_params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use super::shared::{SendAll, uncontrolled_server};
use crate::client::ClientParts;
use crate::registry::Algorithm;
use crate::units::Nanos;

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "seda",
    summary: "",
    source: "",
    params: &[CLIENT_QUEUE, CLIENT_DELAY, MAX_OUTSTANDING],
    build_server: |_, environment| Ok(uncontrolled_server(environment.cores)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};
