//! Breakwater: credits by queueing delay, demand speculation, delay-based AQM (Breakwater, OSDI'20 §3–4; thesis §2.3).
//!
//! - [`config`]: parameters and where their defaults come from; each ablation of the paper is a switch.
//! - [`pool`]: the credits that all cores share, and the laws by which the pool grows and shrinks.
//! - [`server`]: the fast half (windows, lazy distribution, AQM) and the slow half (one step per RTT).
//! - [`allocation`]: what is different where cores come and go (poster SIGCOMM'23 §3).
//! - `drained`: sessions that hold no credit and wait for an explicit one.
//! - [`client`]: sends while the window allows.

pub mod allocation;
pub mod client;
pub mod config;
mod drained;
#[cfg(all(test, loom))]
mod model;
pub mod pool;
pub mod server;

use crate::client::ClientParts;
use crate::registry::Algorithm;

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "breakwater",
    summary: "server-driven credits by queueing delay, with overcommitment and AQM",
    source: "Cho et al., OSDI'20",
    params: config::PARAMS,
    build_server: |params, environment| Ok(server::halves(&config::Config::read(params, environment)?, environment)),
    build_client: |params, environment| {
        let config = config::Config::read(params, environment)?;
        Ok(ClientParts { half: Box::new(client::Client::new(&config)), config: config.client })
    },
};
