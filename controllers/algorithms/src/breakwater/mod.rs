//! Breakwater: credits, demand speculation, delay-based AQM (Breakwater, OSDI'20 §3–4; thesis §2.3), by one of three
//! signals: queueing delay ([`ALGORITHM`]), efficiency ([`EFFICIENCY`]), or whichever has evidence ([`AUTO`]).
//!
//! - [`config`]: what may be told and where the defaults come from; each ablation of the paper is a switch. Names and ranges are
//!   in [`params`].
//! - [`pool`]: the credits that all cores share.
//! - `law`: by what the pool grows and shrinks; the only part in which the three differ.
//! - `samples`: what the efficiency signal needs to know of responses.
//! - [`server`]: the fast half (windows, lazy distribution, AQM) and the slow half (one tick per RTT).
//! - `allocation`: what is different where cores come and go (poster SIGCOMM'23 §3).
//! - `downstream`: what the servers behind this one let through.
//! - `room`: what AQM lets wait there for cores that are still to come.
//! - `overload`: detects it; before that no request is rejected for its delay.
//! - `drained`: sessions that hold no credit and wait for an explicit one.
//! - `strangers`: sessions that have had no credit yet.
//! - [`client`]: sends while the window allows.

mod allocation;
mod backlog;
pub mod client;
pub mod config;
mod downstream;
mod drained;
mod law;
#[cfg(all(test, loom))]
mod model;
mod overload;
pub mod params;
pub mod pool;
mod rotation;
mod samples;
pub mod server;
mod untried;
mod usage;

use config::{Config, PoolSignal};
pub use law::{PoolLaw, PoolState};
use leeward_core::client::ClientParts;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::ServerHalves;

/// The registry's entry for the delay signal.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "breakwater",
    summary: "server-driven credits by queueing delay, with overcommitment and AQM",
    source: "Cho et al., OSDI'20",
    params: params::DELAY,
    build_server: |params, environment| server_with_signal(PoolSignal::Delay, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Delay, params, environment),
};

/// The registry's entry for the efficiency signal.
pub const EFFICIENCY: Algorithm = Algorithm {
    name: "efficiency",
    summary: "the same credits by what more load brings in throughput: for locks and other hidden bottlenecks",
    source: "Cho, thesis 2023, Algorithm 1",
    params: params::EFFICIENCY,
    build_server: |params, environment| server_with_signal(PoolSignal::Efficiency, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Efficiency, params, environment),
};

/// The registry's entry for the automatic signal.
pub const AUTO: Algorithm = Algorithm {
    name: "auto",
    summary: "the same credits by whichever signal, delay or efficiency, has evidence of overload",
    source: "Leeward, on Cho, thesis 2023, §2.3",
    params: params::AUTO,
    build_server: |params, environment| server_with_signal(PoolSignal::Auto, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Auto, params, environment),
};

/// The server's side under a law of the pool that somebody else brings; `params` are [`ALGORITHM`]'s.
///
/// # Errors
/// Parameters that can't stand together.
pub fn server_with_law(
    law: Box<dyn PoolLaw>,
    params: &Params,
    environment: &Environment,
) -> Result<ServerHalves, ParamError> {
    Ok(server::halves_with_pool_law(law, &Config::read(PoolSignal::Delay, params, environment)?, environment))
}

fn server_with_signal(
    signal: PoolSignal,
    params: &Params,
    environment: &Environment,
) -> Result<ServerHalves, ParamError> {
    Ok(server::halves(&Config::read(signal, params, environment)?, environment))
}

fn client_with_signal(
    signal: PoolSignal,
    params: &Params,
    environment: &Environment,
) -> Result<ClientParts, ParamError> {
    let config = Config::read(signal, params, environment)?;
    Ok(ClientParts { half: Box::new(client::Client::new(&config)), config: config.client })
}
